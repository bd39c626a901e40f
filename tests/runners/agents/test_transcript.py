"""What a person reads of an attempt."""

from runners.agents.transcript import Transcript


def test_a_long_thought_or_argument_hides_nothing_after_it():
    transcript = Transcript()
    call = {"function": {"name": "write_file", "arguments": "y" * 50_000}}
    thought = {"role": "assistant", "content": "an answer", "reasoning": "x" * 50_000, "tool_calls": [call]}
    transcript.add("a", 0, [{"role": "user", "content": "a question"}], thought)
    transcript.add("a", 1, [], {"role": "assistant", "content": "the last turn"})
    text = transcript.text()
    assert all(part in text for part in ("a question", "an answer", "-> write_file(yyy", "the last turn"))
    assert len(text) < 6_000
