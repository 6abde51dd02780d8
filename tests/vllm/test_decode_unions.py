"""What the decode steps load, on the metrics page and in profiles, equals what the recorded ids say."""

import numpy as np

N_TOKENS = 24


def test_unions_equal_those_of_the_recorded_ids(engine, reference, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(11, [15] * 16)  # all prompts fit into one step, so that all 16 decode in step
    before = snapshot(engine)
    answers = engine.run([prompt for prompt, _ in drawn], n_tokens=N_TOKENS)
    after = snapshot(engine)
    expected = np.zeros(6)
    # The first token comes out of the prompt's step: 23 steps decode.
    ids = [
        reference.routing([*prompt, *answer.tokens]).ids[len(prompt) : len(prompt) + N_TOKENS - 1]
        for (prompt, _), answer in zip(drawn, answers, strict=True)
    ]
    for step in range(N_TOKENS - 1):
        for layer in range(6):
            expected[layer] += len({int(expert) for each in ids for expert in each[step, layer]})
    assert after["steps"] - before["steps"] == N_TOKENS - 1
    assert after["batch"] - before["batch"] == 16 * (N_TOKENS - 1)
    assert after["unknown"] == before["unknown"]
    found = [after["distinct"][str(layer)] - before["distinct"].get(str(layer), 0) for layer in range(6)]
    assert found == expected.tolist()


def snapshot(engine) -> dict:
    return {
        "steps": engine.metric("eldr_decode_steps_total"),
        "batch": engine.metric("eldr_decode_batch_total"),
        "unknown": engine.metric("eldr_unknown_decode_steps_total"),
        "distinct": engine.by_label("eldr_distinct_experts_total", "layer"),
    }


def test_decode_counts_of_a_request(engine, reference, prompts) -> None:
    engine.forget()
    drawn = prompts.draw(12, [20, 33, 64, 100, 130, 200])
    answers = engine.run([prompt for prompt, _ in drawn], n_tokens=40)
    for (prompt, _), answer in zip(drawn, answers, strict=True):
        routing = reference.routing([*prompt, *answer.tokens])
        profile = answer.decode_counts
        assert profile is not None
        assert (profile.tokens, profile.covered) == (39, 39)
        assert np.array_equal(profile.counts, routing.counts(len(prompt), len(prompt) + 39))


def test_a_request_of_one_token_has_no_decode_steps(engine, prompts) -> None:
    ((prompt, _),) = prompts.draw(13, [50])
    (answer,) = engine.run([prompt])
    assert answer.decode_counts is None
