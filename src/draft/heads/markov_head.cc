#include "draft/heads/markov_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"
#include "tensor/dtype.h"

namespace aerie {
namespace {

constexpr const char* kSecond = "markov_head.markov_w2";

float sigmoid(double x) {
  return static_cast<float>(1.0 / (1.0 + std::exp(-x)));
}

}  // namespace

Expected<std::unique_ptr<MarkovHead>> MarkovHead::load(WeightLoader& loader, HeadFile& file,
                                                       const HeadTarget& target,
                                                       const HeadOptions& options, int vocab,
                                                       int64_t width) {
  std::unique_ptr<MarkovHead> head(new MarkovHead(target, width));
  AERIE_RETURN_IF_ERROR(head->load_markov(loader, file, target, options, vocab));
  AERIE_RETURN_IF_ERROR(head->load_confidence(loader, file));
  if (head->rank_ == 0 && head->confidence_.empty()) return std::unique_ptr<MarkovHead>();
  const int64_t widest = 2 * head->rank_ + width;
  AERIE_ASSIGN_OR_RETURN(head->input_, kernels::Activations::allocate(1, widest));
  const auto rank = static_cast<size_t>(head->rank_);
  head->embedded_.resize(rank);
  head->state_.resize(rank);
  head->inners_.resize(3 * rank);
  head->inputs_.reserve(static_cast<size_t>(widest));
  return head;
}

Status MarkovHead::load_markov(WeightLoader& loader, HeadFile& file, const HeadTarget& target,
                               const HeadOptions& options, int vocab) {
  const JsonObject config = file.config_object();
  const TensorInfo* first = file.find_tensor(kMarkovName);
  AERIE_ASSIGN_OR_RETURN(const int64_t said, config.integer("markov_rank", 0));
  if (first == nullptr) {
    if (said <= 0) return {};
    return not_found("{}: its markov_rank is {}, and there is no {}", file.name(), said,
                     kMarkovName);
  }
  const int64_t rows = first->shape[1];
  rank_ = first->shape[0];
  if (config.has("markov_rank") && said != rank_) {
    return config.error(StatusCode::kInvalidData, "markov_rank",
                        "is {}, and rows of {} are {} long", said, kMarkovName, rank_);
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view kind, config.string("markov_head_type", "vanilla"));
  if (kind != "vanilla" && kind != "gated" && kind != "rnn") {
    return config.error(StatusCode::kUnsupported, "markov_head_type",
                        "is '{}'; vanilla, gated and rnn are known", kind);
  }
  kind_ = kind == "rnn" ? Kind::kRnn : kind == "gated" ? Kind::kGated : Kind::kVanilla;
  if (rows < target.config->vocab) {
    AERIE_RETURN_IF_ERROR(require_equal(file, fmt::format("the number of rows of {}", kMarkovName),
                                        rows, "the target's vocabulary", target.config->vocab));
  }
  AERIE_ASSIGN_OR_RETURN(embedding_, loader.table(kMarkovName, rank_, rows));
  const std::string second = std::string(kSecond) + ".weight";
  if (!options.vocabulary.empty() && file.find_tensor(second) != nullptr) {
    AERIE_RETURN_IF_ERROR(file.keep_rows(second, options.vocabulary));
  }
  AERIE_ASSIGN_OR_RETURN(output_, load_linear(loader, kSecond, rank_, vocab));
  if (kind_ == Kind::kGated) {
    AERIE_ASSIGN_OR_RETURN(inner_,
                           load_linear(loader, "markov_head.gate_proj", width_ + rank_, rank_));
  } else if (kind_ == Kind::kRnn) {
    AERIE_ASSIGN_OR_RETURN(
        inner_, load_linear(loader, "markov_head.joint_proj", width_ + 2 * rank_, 3 * rank_));
  }
  return {};
}

// With the embedding of the token before, where it is wide enough for that.
Status MarkovHead::load_confidence(WeightLoader& loader, const HeadFile& file) {
  const TensorInfo* info = file.find_tensor(kConfidenceName);
  if (info == nullptr) return {};
  const int64_t length = info->shape[0] == width_ ? width_ : width_ + rank_;
  AERIE_ASSIGN_OR_RETURN(confidence_, loader.vector(kConfidenceName, length));
  AERIE_ASSIGN_OR_RETURN(const std::vector<float> bias,
                         loader.vector_if_any("confidence_head.proj.bias", 1));
  if (!bias.empty()) confidence_bias_ = bias[0];
  return {};
}

// y = w x + bias, or += that.
void MarkovHead::multiply(const Linear& w, std::span<const float> x, float* y, bool adds) {
  prepare_activations(backend_, 1, w.weight.k, {&w}, input_);
  std::ranges::copy(x, input_.row(0));
  backend_.quantize(pool_, input_);
  const kernels::MatmulTarget target = w.to(y, adds);
  backend_.matmul(pool_, input_, {&target, 1});
}

void MarkovHead::embed(int32_t token) {
  const TensorView& table = embedding_.view;
  dequantize(table.dtype, table.row(token), table.row_length(), embedded_.data());
}

// z = [state; embedding; hidden]; of three products of z: state = g state + (1 - g) tanh(candidate)
// with g the sigmoid of the first, and tanh of the last is what comes out.
void MarkovHead::step_rnn(std::span<const float> hidden) {
  inputs_.assign(state_.begin(), state_.end());
  inputs_.insert(inputs_.end(), embedded_.begin(), embedded_.end());
  inputs_.insert(inputs_.end(), hidden.begin(), hidden.end());
  multiply(inner_, inputs_, inners_.data(), false);
  const auto rank = static_cast<size_t>(rank_);
  for (size_t i = 0; i < rank; ++i) {
    const float gate = sigmoid(inners_[i]);
    state_[i] = gate * state_[i] + (1.0f - gate) * std::tanh(inners_[rank + i]);
    inners_[2 * rank + i] = std::tanh(inners_[2 * rank + i]);
  }
}

float MarkovHead::confidence(std::span<const float> hidden) const {
  double sum = confidence_bias_;
  for (size_t i = 0; i < hidden.size(); ++i) sum += double{confidence_[i]} * double{hidden[i]};
  for (size_t i = hidden.size(); i < confidence_.size(); ++i) {
    sum += double{confidence_[i]} * double{embedded_[i - hidden.size()]};
  }
  return sigmoid(sum);
}

float MarkovHead::follow(std::span<const int32_t> before, std::span<const float> hidden,
                         std::span<float> logits) {
  const ThreadPool::Round round(pool_);
  const auto width = static_cast<size_t>(width_);
  const std::span<const float> last = hidden.subspan((before.size() - 1) * width, width);
  if (rank_ > 0 && kind_ == Kind::kRnn) {
    std::ranges::fill(state_, 0.0f);
    for (size_t i = 0; i < before.size(); ++i) {
      embed(before[i]);
      step_rnn(hidden.subspan(i * width, width));
    }
    multiply(output_, std::span(inners_).last(static_cast<size_t>(rank_)), logits.data(), true);
  } else if (rank_ > 0) {
    embed(before.back());
    inputs_.assign(embedded_.begin(), embedded_.end());
    if (kind_ == Kind::kGated) {
      std::vector<float>& gated = inners_;
      inputs_.insert(inputs_.begin(), last.begin(), last.end());
      multiply(inner_, inputs_, gated.data(), false);
      inputs_.assign(embedded_.begin(), embedded_.end());
      for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i] *= sigmoid(gated[i]);
    }
    multiply(output_, inputs_, logits.data(), true);
  }
  return confidence_.empty() ? -1.0f : confidence(last);
}

}  // namespace aerie
