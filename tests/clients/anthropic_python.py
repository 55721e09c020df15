"""anthropic-python: messages, streaming, tools and thinking."""

import os

from anthropic import Anthropic

ASK = {"role": "user", "content": "How is the weather in Paris?"}
WEATHER = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
client = Anthropic(base_url=os.environ["PODIUM"], api_key="none")
common = {"model": "podium", "max_tokens": 2000}

whole = client.messages.create(messages=[ASK], **common)
assert whole.content[0].text == "Hello from the pool."
with client.messages.stream(messages=[ASK], **common) as stream:
    assert "".join(stream.text_stream) == "Hello from the pool."
    final = stream.get_final_message()
assert final.content[0].type == "thinking" and "a: Answer" in final.content[0].thinking

thinking = {"type": "enabled", "budget_tokens": 1024}
with client.messages.stream(messages=[ASK], tools=[WEATHER], thinking=thinking, **common) as stream:
    first = stream.get_final_message()
assert first.stop_reason == "tool_use"
use = first.content[-1]
assert use.name == "weather" and use.input == {"city": "Paris"}
result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
last = client.messages.create(
    messages=[
        ASK,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ],
    tools=[WEATHER],
    thinking=thinking,
    **common,
)
assert last.content[-1].text == "It is sunny in Paris."
print("ok")  # noqa: T201
