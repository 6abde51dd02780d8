"""Counts that the plugin hands over equal those of Hugging Face's model, token by token, in every case."""

import numpy as np

PROMPT_LENGTHS = (31, 40, 64, 96, 100, 127, 128, 129, 160, 200, 250)


def check(drawn, answers, *, n_cached=None) -> None:
    for index, ((prompt, routing), answer) in enumerate(zip(drawn, answers, strict=True)):
        counts = answer.counts
        assert (counts.tokens, counts.covered) == (len(prompt), len(prompt))
        assert np.array_equal(counts.counts, routing.counts(0, len(prompt))), f"prompt {index}"
        if n_cached is not None:
            assert counts.cached == n_cached[index]


def test_fresh_prompts(engine, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(1, PROMPT_LENGTHS * 10)
    answers = [answer for start in range(0, len(drawn), 11) for answer in one_batch(engine, drawn, start)]
    check(drawn, answers, n_cached=[0] * len(drawn))
    print(f"\n{len(drawn)} fresh prompts; {prompts.n_left_out} drawn ones left out for near ties")


def one_batch(engine, drawn, start):
    engine.forget()  # the cache holds few prompts: each batch has it for itself
    return engine.run([prompt for prompt, _ in drawn[start : start + 11]])


def test_full_prefix_hits(engine, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(2, [40, 64, 100, 129, 160, 200, 250, 300])
    first = engine.run([prompt for prompt, _ in drawn])
    again = engine.run([prompt for prompt, _ in drawn])
    check(drawn, first)
    # vLLM computes at least the last token again, and with it the block it lies in.
    check(drawn, again, n_cached=[(len(prompt) - 1) // 32 * 32 for prompt, _ in drawn])


def test_a_shared_prefix_with_a_new_tail(engine, prompts) -> None:
    engine.forget()
    ((head, _),) = prompts.draw(3, [256])
    engine.run([head])
    drawn = prompts.draw(4, [1, 5, 17, 32, 50, 64, 90, 100] * 4, head=head)
    for start in range(0, len(drawn), 8):
        part = drawn[start : start + 8]
        check(part, engine.run([prompt for prompt, _ in part]), n_cached=[256] * 8)


def test_chunked_prefill(engine, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(5, [257, 300, 511, 512, 513, 700, 1023, 1400])
    for one in drawn:
        check([one], engine.run([one[0]]))
    engine.forget()
    check(drawn[:5], engine.run([prompt for prompt, _ in drawn[:5]]))


def test_preemption(engine, prompts) -> None:
    engine.forget()
    before = engine.metric("vllm:num_preemptions_total")
    drawn = prompts.draw(6, [100, 130, 160, 190] * 4)
    answers = engine.run([prompt for prompt, _ in drawn], n_tokens=120)
    check(drawn, answers)
    n_preempted = engine.metric("vllm:num_preemptions_total") - before
    print(f"\n{n_preempted:.0f} preemptions")
    assert n_preempted >= 3


def test_a_prompt_of_several_turns(engine, reference, prompts) -> None:
    engine.forget()
    ((prompt, _),) = prompts.draw(7, [100])
    (first,) = engine.run([prompt], n_tokens=61)
    longer = [*prompt, *first.tokens, *range(30)]
    routing = reference.routing(longer)
    (second,) = engine.run([longer])
    assert second.counts.cached == 160  # five full blocks, two of them with tokens the model wrote itself
    assert np.array_equal(second.counts.counts, routing.counts(0, len(longer)))


def test_blocks_given_out_anew_do_not_keep_the_experts_of_others(engine, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(8, [400] * 24)  # 9,600 tokens through 3,584 slots
    for start in range(0, 24, 6):
        part = drawn[start : start + 6]
        check(part, engine.run([prompt for prompt, _ in part]), n_cached=[0] * 6)
