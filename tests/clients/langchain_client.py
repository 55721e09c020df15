"""langchain-openai: invoke, stream, tools and shapes."""

import os

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

model = ChatOpenAI(model="podium", base_url=f"{os.environ['PODIUM']}/v1", api_key="none")


@tool
def weather(city: str) -> str:
    """How the weather is."""
    return "sunny"


class City(BaseModel):
    city: str
    people: int


assert model.invoke("Hello?").content == "Hello from the pool."
assert "".join(chunk.content for chunk in model.stream("Hello?")) == "Hello from the pool."
bound = model.bind_tools([weather])
ask = HumanMessage("How is the weather in Paris?")
turn = bound.invoke([ask])
(call,) = turn.tool_calls
assert call["args"] == {"city": "Paris"}
last = bound.invoke([ask, turn, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])])
assert last.content == "It is sunny in Paris."
assert model.with_structured_output(City).invoke("Paris?") == City(city="Paris", people=2_100_000)
usage = model.invoke("Hello?").usage_metadata
assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] == 30
print("ok")  # noqa: T201
