// What is asked of the server that sent this page.

import { $ } from "./dom.js";

function headers(key) {
  return {
    "Content-Type": "application/json",
    ...(key && { Authorization: `Bearer ${key}` }),
  };
}

async function refusal(response, hint) {
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not OpenAI's form: what there is must do.
  }
  const where = response.status === 401 ? ` ${hint}` : "";
  const error = new Error(`${message || response.statusText} (HTTP status ${response.status})${where}`);
  error.status = response.status;
  return error;
}

// What to say of an error of what follows.
export function reasonOf(error) {
  return error instanceof TypeError ? "The server cannot be reached." : error.message;
}

// The response, once it is no refusal. With a body it is a POST; `hint` says where the key is given.
export async function ask(path, { body, key, signal, hint = "Give the key under Settings." } = {}) {
  const response = await fetch(path, {
    method: body ? "POST" : "GET",
    headers: headers(key ?? $("api-key").value.trim()),
    body: body && JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await refusal(response, hint);
  return response;
}

// The objects of a stream of server-sent events.
export async function* stream(path, body, signal) {
  const response = await ask(path, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message ?? "The server gave up.");
      yield event;
    }
  }
  throw new Error("The connection ended before the reply did.");
}
