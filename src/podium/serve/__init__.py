"""One endpoint in front of many models: OpenAI's and Anthropic's APIs over Podium's strategies.

exchange.py   bytes in and out: bounded bodies, slow readers, clients that leave
wire.py       what the three APIs share: fields read with care, a request, its outcome
chat.py       OpenAI chat completions ┐
responses.py  OpenAI responses        ├ pure functions: JSON to `Asked`, a run to JSON or events
messages.py   Anthropic messages      ┘
talk.py       conversations: which question they ask, and where a tool's result belongs
telling.py    a run's events told in the voice of one of them
keys.py       who may ask, and how much they may spend; denials.py which workers nobody is given
desk.py       from `Asked` to a run: model, strategy, limits, budget, tool sessions
retries.py    why steps were tried again, kept beside the run
journal.py    a line for every request; metrics.py counts for Prometheus
openapi.py    what is taken and given, described
app.py        the routes; server.py the process around them
web/          the page; visit.py finds it from outside, beside.py shows it a run of one's own
"""
