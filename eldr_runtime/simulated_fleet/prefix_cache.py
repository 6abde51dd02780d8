"""Which prompt prefixes a prefill worker still holds, in blocks of tokens, least recently used out first."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 16  # vLLM's default block on a GPU


class PrefixCache:
    """Hashes of full blocks, each with all blocks before it, as vLLM keys its prefix cache.

    Examples
    --------
    >>> cache = PrefixCache(capacity_blocks=8, block_tokens=2)
    >>> cache.insert("a b c d e".split())
    >>> cache.cached_tokens("a b c d x".split()), cache.cached_tokens("a b c d".split())
    (4, 2)
    """

    def __init__(self, *, capacity_blocks: int, block_tokens: int = BLOCK_TOKENS) -> None:
        self._capacity_blocks = capacity_blocks
        self._block_tokens = block_tokens
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def cached_tokens(self, tokens: Sequence[str]) -> int:
        """Return the tokens of the longest held prefix; the last token is never one, it must be computed."""
        n_cached = 0
        for key in self._block_keys(tokens[:-1]):
            if key not in self._blocks:
                break
            n_cached += self._block_tokens
        return n_cached

    def insert(self, tokens: Sequence[str]) -> None:
        """Hold the full blocks of this prompt, as the most recently used ones."""
        # the first block is touched last, so that a prefix outlives what follows it
        for key in reversed(list(self._block_keys(tokens))):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)

    def _block_keys(self, tokens: Sequence[str]) -> Iterator[bytes]:
        key = b""
        for end in range(self._block_tokens, len(tokens) + 1, self._block_tokens):
            block = "\0".join(tokens[end - self._block_tokens : end])
            key = hashlib.blake2b(key + block.encode(), digest_size=16).digest()
            yield key
