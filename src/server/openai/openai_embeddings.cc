#include "server/openai/openai_embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/json_text.h"
#include "server/openai/prompt_input.h"

namespace aerie::server {
namespace {

// Of a request. What waits for one client has to find places among those that wait at most.
constexpr int kMostInputs = 1024;
constexpr size_t kMostTokens = 300'000;
// Numbers of an answer.
constexpr size_t kMostNumbers = size_t{1} << 22;

// Of length 1, as far as there is any.
std::vector<float> normalized(std::span<const float> vector) {
  double sum = 0.0;
  for (const float x : vector) sum += double{x} * double{x};
  const double length = sum > 0.0 ? std::sqrt(sum) : 1.0;
  std::vector<float> out;
  out.reserve(vector.size());
  for (const float x : vector) out.push_back(static_cast<float>(x / length));
  return out;
}

// The shortest decimals that mean these floats. JSON knows nothing but numbers.
void add_numbers(std::span<const float> vector, std::string& out) {
  char before = '[';
  for (const float x : vector) {
    out += std::exchange(before, ',');
    if (std::isfinite(x)) {
      fmt::format_to(std::back_inserter(out), "{}", x);
    } else {
      out += "null";
    }
  }
  out += ']';
}

// Four bytes each, the lowest first.
void add_base64(std::span<const float> vector, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  const auto* bytes = reinterpret_cast<const unsigned char*>(vector.data());
  const size_t count = vector.size_bytes();
  std::string text((count + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes, static_cast<int>(count));
  text.pop_back();
  out += '"' + text + '"';
}

struct EmbeddingForm {
  std::string model;
  bool base64 = false;
  size_t dimensions = 0;
};

// Never of a stream.
class EmbeddingFormat final : public ReplyFormat {
 public:
  explicit EmbeddingFormat(EmbeddingForm form) : form_(std::move(form)) {}

  std::string opening(const std::vector<Choice>&) override { return {}; }
  std::string delta(const Choice&, const ReplyDelta&) override { return {}; }
  std::string closing(const Choice&, const ReplyDelta&) override { return {}; }
  std::string ending(const std::vector<Choice>&) override { return {}; }
  std::string failure(const ApiError& error) override { return error_body(error); }

  // By hand: as values of the library the numbers would take several times the memory.
  std::string whole(const std::vector<Choice>& choices) override {
    std::string out = R"({"object":"list","data":[)";
    int tokens = 0;
    for (const Choice& choice : choices) {
      if (choice.index > 0) out += ',';
      out += fmt::format(R"({{"object":"embedding","index":{},"embedding":)", choice.index);
      const std::span<const float> all = choice.end.embedding;
      const std::vector<float> vector =
          normalized(all.first(std::min(all.size(), form_.dimensions)));
      form_.base64 ? add_base64(vector, out) : add_numbers(vector, out);
      out += '}';
      tokens += choice.end.prompt_tokens;
    }
    out += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                       json_text(form_.model), tokens, tokens);
    return out;
  }

 private:
  const EmbeddingForm form_;
};

EmbeddingForm read_form(FieldReader& request, const ApiState& state) {
  EmbeddingForm form;
  const std::string encoding = request.string("encoding_format", "float");
  if (encoding != "float" && encoding != "base64") {
    request.refuse("encoding_format", "must be float or base64");
  }
  form.base64 = encoding == "base64";
  const int size = state.service.embedding_size();
  if (size == 0) request.refuse("model", "gives no embeddings");
  form.dimensions = static_cast<size_t>(request.integer("dimensions", size, 1, size));
  return form;
}

Pooling pooling_of(FieldReader& request, const ApiState& state) {
  if (state.options.pooling) return *state.options.pooling;
  const Expected<Pooling> pooling = state.service.pooling();
  if (pooling.ok()) return *pooling;
  request.refuse(error_of(400, pooling.status().message(), "model"));
  return Pooling::kLast;
}

void check_sizes(FieldReader& request, const ApiState& state, const Prompts& prompts) {
  size_t tokens = 0;
  for (const auto& ids : prompts.ids) tokens += ids.size();
  if (tokens > kMostTokens) {
    request.refuse("input", "has {} tokens; one request may have {}", tokens, kMostTokens);
  }
  const auto size = static_cast<size_t>(state.service.embedding_size());
  if (prompts.ids.size() * size > kMostNumbers) {
    request.refuse("input",
                   "{} vectors of {} numbers are too many for one answer: ask for at most {}",
                   prompts.ids.size(), size, kMostNumbers / size);
  }
}

}  // namespace

ReplyTask read_embeddings(FieldReader& request, ApiState& state, const HttpRequest& from) {
  ReplyTask task;
  GenerationSettings settings = read_settings(request, state, from, {});
  EmbeddingForm form = read_form(request, state);
  const Pooling pooling = pooling_of(request, state);
  if (request.failed()) return task;
  Prompts prompts = read_prompts(request, state, "input", kMostInputs);
  check_sizes(request, state, prompts);
  if (request.failed()) return task;
  form.model = settings.model;
  settings.request.pooling = pooling;
  settings.request.max_tokens = 1;
  settings.request.speculate = false;
  for (size_t i = 0; i < prompts.ids.size(); ++i) {
    task.requests.push_back(settings.request);
    task.requests.back().prompt = std::move(prompts.ids[i]);
    task.prompts.push_back(static_cast<int>(i));
  }
  task.format = std::make_unique<EmbeddingFormat>(std::move(form));
  return task;
}

}  // namespace aerie::server
