// What draft heads are made of: tables and products of their own or of the target, loaded with
// checks of what belongs together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "kernels/backend.h"
#include "kernels/op_kinds.h"
#include "model/import/head_file.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

struct HeadDevice;

// The target that a head is loaded for, and where it will run. All of it outlives the head.
struct HeadTarget {
  ModelParts parts;
  const ModelConfig* config = nullptr;
  const ModelFile* file = nullptr;  // the target's
  const kernels::Backend* backend = nullptr;
  ThreadPool* pool = nullptr;
  int max_rows = 512;
  int max_logits = 64;
  int max_positions = 0;  // that rows can have; kMostHeadDepth more than the longest sequence
  // Of a head that the target's device computes: parts and backend are those of it.
  std::shared_ptr<HeadDevice> device = nullptr;
  int ranks = 0;  // tokens after a row that drafts ask for (HeadOutputs::top), where that helps

  // As layers of a head are loaded: nothing is kept of packed weights.
  ModelOptions model_options() const;
};

struct HeadOptions {
  std::optional<DType> dtype;  // of the head's matrices instead of their own
  // The target's ids that can be drafted, ascending (FR-Spec 2502.14856); empty: all. For heads
  // with the whole vocabulary.
  std::vector<int32_t> vocabulary;
  // The layers to tap, instead of those of the configuration; empty: those.
  std::vector<int32_t> tap_layers;
};

// kInvalidArgument, saying which two figures differ, unless they are equal.
Status require_equal(const ModelFile& head, std::string_view what, int64_t of_head,
                     std::string_view of_what, int64_t other);

// For a target that may read on beyond the context that a head was trained for: the attention of
// the head's layers slides a window of that many positions. Rotary embedding knows distances alone,
// so the head never sees one that it does not know.
void slide_windows(Blueprint& blueprint, const HeadTarget& target);

// HeadFile::blueprint() with such windows.
Expected<Blueprint> head_blueprint(const HeadFile& file, const HeadTarget& target);

// Matrix `name`.weight [n, k] and, if there is one, vector `name`.bias.
Expected<Linear> load_linear(WeightLoader& loader, const std::string& name, int64_t k, int64_t n);

// The embedding of tokens: the head's own, if it has one, or the target's.
class HeadEmbedding {
 public:
  // `name`: of the head's table. kInvalidArgument if it has none and the target's rows are not
  // `width` long, or if its own has fewer rows than the target has tokens.
  static Expected<HeadEmbedding> load(WeightLoader& loader, const HeadFile& file,
                                      const std::string& name, int64_t width,
                                      const HeadTarget& target);
  void row(int32_t token, float* out) const;

 private:
  TensorData own_;
  const TransformerWeights* target_ = nullptr;
};

// From hidden states to logits: the head's own matrix, or the target's.
class OutputHead {
 public:
  // `name`: of the head's matrix [vocab, width]; the target's is taken if there is none, in the
  // options' type and vocabulary. The head's may have "d2t" beside it, the target's ids of its rows
  // as indices or as offsets, and then is `draft_vocab` long. A matrix X.weight of the head's may
  // have X.bias.
  static Expected<OutputHead> load(WeightLoader& loader, HeadFile& file, const std::string& name,
                                   int64_t width, const HeadTarget& target,
                                   const HeadOptions& options);
  // The same of a head whose own matrix has rows for these of the target's tokens, in this order,
  // or rows for all of them, of which these are kept. kInvalidData if one of them is no token of
  // the target or comes twice, kInvalidArgument if the options name others.
  static Expected<OutputHead> load_mapped(WeightLoader& loader, HeadFile& file,
                                          const std::string& name, int64_t width,
                                          std::span<const int64_t> tokens, const HeadTarget& target,
                                          const HeadOptions& options);

  // Another output matrix of the same head. kInvalidData, naming the head, unless it is of the same
  // tokens.
  Status require_same(const OutputHead& other, const ModelFile& file) const;

  int vocab() const { return static_cast<int>(linear().weight.n); }
  std::span<const int32_t> target_ids() const { return ids_; }
  const Linear& linear() const { return target_ != nullptr ? *target_ : own_; }

 private:
  Status load_own(WeightLoader& loader, HeadFile& file, const std::string& name, int64_t width,
                  const std::vector<int32_t>& rows);

  Linear own_;
  const Linear* target_ = nullptr;
  std::vector<int32_t> ids_;
};

}  // namespace aerie
