#include "tests/train/methods/offset_rows.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/train/fit.h"

namespace aerie::test {

std::vector<float> offset_log_probabilities(train::Method& method, const train::Batch& batch,
                                            int64_t row, int head,
                                            std::span<const int32_t> labels) {
  train::Batch asked = batch;
  asked.tokens = batch.tokens.clone();
  asked.mask = at::zeros_like(batch.mask);
  const int64_t place = row + 2 + head;
  asked.mask[row + 1] = 1.0f;
  asked.mask[place] = 1.0f;
  std::vector<float> values;
  for (const int32_t label : labels) {
    asked.tokens[place] = label;
    at::Generator generator = at::detail::createCPUGenerator(5);
    const auto figures = method.accumulate(asked, 1.0, generator, false);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    if (!figures.ok()) return values;
    values.push_back(static_cast<float>(-figure(*figures, fmt::format("loss_{}", head + 1))));
  }
  return values;
}

std::vector<RowOutput> drafted_down(FeatureHead& head, const train::Batch& batch,
                                    const PromptedText& text, int64_t row, int depth) {
  std::vector<Floats> features;
  for (int64_t t = 0; t <= row; ++t) {
    const at::Tensor values = batch.last[t].contiguous();
    const auto* begin = values.data_ptr<float>();
    features.emplace_back(begin, begin + values.numel());
  }
  const auto tokens = std::span(text.tokens).subspan(1);
  RowRunner runner(head);
  std::vector<RowOutput> outputs = {
      runner.commit(features, tokens.first(features.size()), 1).back()};
  for (int i = 1; i < depth; ++i) {
    outputs.push_back(runner.add_node(outputs.back().hidden, tokens[static_cast<size_t>(row + i)]));
  }
  return outputs;
}

std::vector<float> log_softmax(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value - most));
  std::vector<float> out;
  for (const float value : logits) out.push_back(value - most - static_cast<float>(std::log(sum)));
  return out;
}

}  // namespace aerie::test
