#include "server/ollama/ollama_input.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace aerie::server {
namespace {

// Options by their names there and here. Others are about memory and threads, which the server was
// started with.
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"num_predict", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"max_reasoning_tokens", "max_reasoning_tokens"},
};

void add_options(FieldReader& request, Json& out) {
  const Json* options = request.object("options");
  if (options == nullptr) return;
  FieldReader reader(*options, request.error(), "options");
  for (const auto& [theirs, ours] : kOptions) {
    if (const Json* value = reader.find(theirs)) out[ours] = *value;
  }
  // As many as the context holds.
  if (out.contains("max_tokens") && out["max_tokens"].is_number() && out["max_tokens"] < 0) {
    out.erase("max_tokens");
  }
}

void add_format(FieldReader& request, Json& out) {
  const Json* format = request.find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    out["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    out["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *format}}}};
  } else {
    request.refuse("format", "must be \"json\" or a JSON schema");
  }
}

void add_think(FieldReader& request, Json& out) {
  const Json* think = request.find("think");
  if (think == nullptr) return;
  if (think->is_boolean()) {
    out["reasoning_effort"] = *think == true ? "medium" : "none";
  } else {
    out["reasoning_effort"] = request.string("think", "");
  }
}

Json common(FieldReader& request) {
  Json out = Json::object();
  if (std::string model = ollama_name(request); !model.empty()) out["model"] = std::move(model);
  out["stream"] = request.boolean("stream", true);
  add_options(request, out);
  add_format(request, out);
  add_think(request, out);
  if (const Json* speculation = request.find("speculation")) out["speculation"] = *speculation;
  return out;
}

void refuse_images(FieldReader& request) {
  const Json* images = request.array("images");
  if (images != nullptr && !images->empty()) {
    request.refuse("images", "are not taken by this model");
  }
}

Json message_of(FieldReader& request, const Json& given, size_t index) {
  FieldReader message(given, request.error(), fmt::format("messages[{}]", index));
  refuse_images(message);
  if (message.failed()) return {};
  Json out = given;
  out.erase("images");
  if (out.contains("thinking")) {
    out["reasoning_content"] = std::move(out["thinking"]);
    out.erase("thinking");
  }
  if (!out.contains("content")) out["content"] = "";
  return out;
}

}  // namespace

std::string ollama_name(FieldReader& request) {
  std::string model = request.string("model", "");
  constexpr std::string_view kLatest = ":latest";
  if (model.ends_with(kLatest)) model.resize(model.size() - kLatest.size());
  return model;
}

Json chat_of_ollama(FieldReader& request, bool is_generate) {
  if (request.failed()) return {};
  Json out = common(request);
  out["messages"] = Json::array();
  if (is_generate) {
    refuse_images(request);
    const std::string system = request.string("system", "");
    if (!system.empty()) out["messages"].push_back({{"role", "system"}, {"content", system}});
    if (!request.has("prompt")) request.refuse("prompt", "is missing");
    out["messages"].push_back({{"role", "user"}, {"content", request.string("prompt", "")}});
    return out;
  }
  const Json* messages = request.array("messages");
  if (messages == nullptr) {
    request.refuse("messages", "is missing");
    return out;
  }
  for (size_t i = 0; i < messages->size() && !request.failed(); ++i) {
    out["messages"].push_back(message_of(request, (*messages)[i], i));
  }
  if (const Json* tools = request.array("tools")) out["tools"] = *tools;
  return out;
}

Json completion_of_ollama(FieldReader& request) {
  if (request.failed()) return {};
  Json out = common(request);
  out.erase("reasoning_effort");
  if (!request.has("prompt")) request.refuse("prompt", "is missing");
  out["prompt"] = request.string("prompt", "");
  refuse_images(request);
  return out;
}

}  // namespace aerie::server
