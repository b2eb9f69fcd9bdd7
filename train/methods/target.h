// What trainers need of the target: its shape and its own weights as tensors, which stay as they
// are.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/model_source.h"
#include "model/blueprint.h"

namespace aerie::train {

// The name of a model's class in Hugging Face's transformers ("Qwen2ForCausalLM"), as a config.json
// has it under `architectures`, by the architecture that a GGUF file names; empty where that stands
// for several.
std::string_view transformers_class(const ModelFile& file, const ModelConfig& config);

class Target {
 public:
  // A GGUF file or a Hugging Face folder; `pool` must outlive it. kUnsupported for a model whose
  // final norm is not an RMS norm.
  static Expected<std::unique_ptr<Target>> open(const std::string& path, ThreadPool& pool);

  const std::string& path() const { return path_; }
  const ModelSource& source() const { return source_; }
  const Blueprint& blueprint() const { return blueprint_; }
  const ModelConfig& config() const { return blueprint_.config; }
  double norm_eps() const { return blueprint_.norm_eps; }
  double rope_base() const { return blueprint_.ropes.front().base; }

  // Float tensors, read when first asked for and then kept; all of them on one device, the CPU
  // unless to() said otherwise.
  // [vocab, hidden]; rows are what layers see, the embedding's scale applied.
  Expected<at::Tensor> embedding();
  // [vocab, hidden]: the LM head, whether the file has one of its own or shares the embedding's.
  Expected<at::Tensor> output();
  // [hidden].
  Expected<at::Tensor> final_norm();
  // Any tensor by GGUF's name, [outputs, inputs] or [width], as floats; not kept. Rows of queries
  // and keys ("blk.N.attn_q.weight") are put in the order of Hugging Face's files, in which halves
  // of a head turn.
  Expected<at::Tensor> tensor(const std::string& name) const;
  // What tensor() gave under this name, or what became of it, in the order of the target's file.
  at::Tensor in_file_order(const std::string& name, const at::Tensor& values) const;

  // The ids that a drafter of this vocabulary drafts, of an empty one all: int64. kInvalidArgument
  // for what is not ascending ids of the target's.
  Expected<at::Tensor> draft_ids(const std::vector<int32_t>& vocabulary) const;

  void to(const at::Device& device) { device_ = device; }

 private:
  Target() = default;
  Expected<at::Tensor> keep(at::Tensor& slot, const std::string& name);

  std::string path_;
  ModelSource source_;
  Blueprint blueprint_;
  at::Device device_ = at::kCPU;
  at::Tensor embedding_, output_, final_norm_;
};

// Logits of the stream behind the target's last layer, x [rows, hidden]: the final norm and the
// rows `output` [tokens, hidden] of the LM head, with the soft cap of models that have one.
at::Tensor target_logits(const Target& target, const at::Tensor& x, const at::Tensor& norm,
                         const at::Tensor& output);

}  // namespace aerie::train
