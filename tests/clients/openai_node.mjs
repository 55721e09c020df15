// openai-node: chat, responses, streaming, tools and shapes.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.PODIUM}/v1`, apiKey: "none" });
const messages = [{ role: "user", content: "How is the weather in Paris?" }];
const parameters = { type: "object", properties: { city: { type: "string" } } };
const HELLO = "Hello from the pool.";

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert(names.includes("podium"));

const whole = await client.chat.completions.create({ model: "podium", messages });
assert.equal(whole.choices[0].message.content, HELLO);
let said = "";
const stream = await client.chat.completions.create({ model: "podium", messages, stream: true });
for await (const chunk of stream) said += chunk.choices[0]?.delta?.content ?? "";
assert.equal(said, HELLO);

const tools = [{ type: "function", function: { name: "weather", parameters } }];
const runner = client.chat.completions.stream({ model: "podium", messages, tools });
const [call] = (await runner.finalChatCompletion()).choices[0].message.tool_calls;
assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
const last = await client.chat.completions.create({
  model: "podium",
  messages: [
    ...messages,
    { role: "assistant", tool_calls: [call] },
    { role: "tool", tool_call_id: call.id, content: "sunny" },
  ],
  tools,
});
assert.equal(last.choices[0].message.content, "It is sunny in Paris.");
const shape = { type: "json_schema", json_schema: { name: "city", schema: { type: "object" } } };
const shaped = await client.chat.completions.parse({
  model: "podium", messages, response_format: shape,
});
assert.equal(JSON.parse(shaped.choices[0].message.content).city, "Paris");

const response = await client.responses.create({ model: "podium", input: "Hello?" });
assert.equal(response.output_text, HELLO);
const kinds = [];
let text = "";
for await (const event of await client.responses.create({
  model: "podium", input: "Hello?", stream: true,
})) {
  kinds.push(event.type);
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.equal(text, HELLO);
assert.equal(kinds.at(-1), "response.completed");
const asked = await client.responses.create({
  model: "podium", input: "Weather?", tools: [{ type: "function", name: "weather", parameters }],
});
const wanted = asked.output.find((item) => item.type === "function_call");
const answered = await client.responses.create({
  model: "podium",
  previous_response_id: asked.id,
  input: [{ type: "function_call_output", call_id: wanted.call_id, output: "sunny" }],
  tools: [{ type: "function", name: "weather", parameters }],
});
assert.equal(answered.output_text, "It is sunny in Paris.");
console.log("ok");
