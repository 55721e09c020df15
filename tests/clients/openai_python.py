"""openai-python: chat, responses, streaming, tools and shapes."""

import os

from openai import OpenAI
from pydantic import BaseModel

WEATHER = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK = [{"role": "user", "content": "How is the weather in Paris?"}]
client = OpenAI(base_url=f"{os.environ['PODIUM']}/v1", api_key="none")


class City(BaseModel):
    city: str
    people: int


assert "podium" in [model.id for model in client.models.list()]
whole = client.chat.completions.create(model="podium", messages=ASK)
assert whole.choices[0].message.content == "Hello from the pool."
pieces = client.chat.completions.create(model="podium", messages=ASK, stream=True)
said = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
assert said == "Hello from the pool."

tools = [{"type": "function", "function": WEATHER}]
with client.chat.completions.stream(model="podium", messages=ASK, tools=tools) as stream:
    for _ in stream:
        pass
    message = stream.get_final_completion().choices[0].message
(call,) = message.tool_calls
assert call.function.name == "weather" and call.function.arguments == '{"city": "Paris"}'
result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
turn = {"role": "assistant", "tool_calls": [call.model_dump(exclude={"index"})]}
last = client.chat.completions.create(model="podium", messages=[*ASK, turn, result], tools=tools)
assert last.choices[0].message.content == "It is sunny in Paris."
shaped = client.chat.completions.parse(model="podium", messages=ASK, response_format=City)
assert shaped.choices[0].message.parsed == City(city="Paris", people=2_100_000)

response = client.responses.create(model="podium", input="Hello?")
assert response.output_text == "Hello from the pool."
tools = [{"type": "function", "strict": False, **WEATHER}]
with client.responses.stream(model="podium", input="Weather in Paris?", tools=tools) as events:
    for _ in events:
        pass
    response = events.get_final_response()
call = next(item for item in response.output if item.type == "function_call")
answer = client.responses.create(
    model="podium",
    previous_response_id=response.id,
    input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
    tools=tools,
)
assert answer.output_text == "It is sunny in Paris."
parsed = client.responses.parse(model="podium", input="Paris?", text_format=City)
assert parsed.output_parsed == City(city="Paris", people=2_100_000)
print("ok")  # noqa: T201
