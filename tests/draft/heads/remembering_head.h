// A head for tests of what heads are fed: it remembers what lies in every slot of its cache and
// fails the test where a row sees what it must not. Its logits are a hash of all that the row sees.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "draft/heads/feature_head.h"

namespace aerie::test {

inline constexpr int kHidden = 4;  // of the target
inline constexpr int kTaps = 2;
inline constexpr int kWidth = kTaps * kHidden;
inline constexpr int kVocab = 24;
inline constexpr int kMaskToken = 7;

using Hash = uint32_t;

Hash mixed(Hash a, Hash b);
Hash hash_of(Hash above, std::span<const float> features, int32_t token);
void write_logits(Hash hash, std::span<float> out);
// What the target's layers give at a position of a text.
std::vector<float> features_at(int text, int position);

struct HeadShape {
  int layers = 1;
  int outputs_of_root = 1;
  int mask_rows = 0;
};

// What the head has seen, for the test to ask while the network owns the head.
struct HeadLog {
  int passes = 0;
  int most_rows = 0, most_wanted = 0;
  std::map<int, int> rows_of;   // committed rows read, by text
  std::map<int, int> first_of;  // the position that the head's rows of a text begin with
};

// Its logits are a hash of all that the row sees: of committed rows features and tokens, of nodes
// tokens. Without layers a row sees itself alone.
class RememberingHead final : public FeatureHead {
 public:
  RememberingHead(const HeadShape& shape, HeadLog& log) : shape_(shape), log_(log) {
    config_.layers = shape.layers;
    config_.hidden = config_.head_dim = 16;
    config_.heads = config_.kv_heads = 1;
    mask_.assign(kWidth, 5.0f);
  }

  std::span<const int32_t> tap_layers() const override { return taps_; }
  int feature_width() const override { return kWidth; }
  int hidden() const override { return 2; }
  int vocab() const override { return kVocab; }
  const ModelConfig& cache_config() const override { return config_; }
  int outputs_of_root() const override { return shape_.outputs_of_root; }
  int mask_rows() const override { return shape_.mask_rows; }
  int32_t mask_token() const override { return kMaskToken; }
  const float* mask_features() const override { return mask_.data(); }
  HeadOutputs forward(const HeadPass& pass, KvCache& cache) override;

 private:
  enum class Kind : uint8_t { kCommitted, kMask, kNode };
  struct Row {
    Kind kind = Kind::kCommitted;
    int position = -1;
    int32_t token = -1;
    Hash hash = 0;
  };

  static int32_t slot_at(const BatchSequence& sequence, int position) {
    return sequence.pages[static_cast<size_t>(position / kernels::kPagePositions)] *
               kernels::kPagePositions +
           position % kernels::kPagePositions;
  }
  // What lies before a row of the batch. kCommitted for the sequence's committed prefix.
  const Row* above(const HeadPass& pass, const BatchRow& row);
  void check_prefix(const BatchSequence& sequence);
  void check_node(const HeadPass& pass, const BatchRow& row);
  Row read(const HeadPass& pass, size_t index);

  HeadShape shape_;
  HeadLog& log_;
  ModelConfig config_;
  std::vector<int32_t> taps_ = {1, 3};
  std::vector<float> mask_, logits_, hidden_;
  std::map<int32_t, Row> slots_;
};

}  // namespace aerie::test
