"""litellm as a client: OpenAI's and Anthropic's routes."""

import os

import litellm

ASK = [{"role": "user", "content": "Hello?"}]
openai = {"model": "openai/podium", "api_base": f"{os.environ['PODIUM']}/v1", "api_key": "none"}
claude = {"model": "anthropic/podium", "api_base": os.environ["PODIUM"], "api_key": "none"}
for route in (openai, claude):
    whole = litellm.completion(messages=ASK, **route)
    assert whole.choices[0].message.content == "Hello from the pool.", whole
    pieces = litellm.completion(messages=ASK, stream=True, **route)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
    assert said == "Hello from the pool.", said
print("ok")  # noqa: T201
