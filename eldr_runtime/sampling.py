"""Which requests are in a sample: decided alike by whoever knows the request's id."""

import hashlib

_N_VALUES = 2**64


def is_sampled(request_id: str, share: float) -> bool:
    """Return whether a request belongs to a sample of the given share in [0, 1].

    A pure function of the id, so that a decode worker and the router agree without a word; a sample of a
    smaller share is part of every larger one.

    Examples
    --------
    >>> is_sampled("request-7", 1.0), is_sampled("request-7", 0.0)
    (True, False)
    """
    word = int.from_bytes(
        hashlib.blake2b(request_id.encode(), digest_size=8, person=b"sample").digest(), "big"
    )
    return word < share * _N_VALUES
