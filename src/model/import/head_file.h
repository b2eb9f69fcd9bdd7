// A draft head's checkpoint as a ModelFile: EAGLE's, Medusa's, speculators' and their like, which
// come as a config.json and safetensors files; and the modules that lie in a model's own file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "format/json.h"
#include "format/model_file.h"
#include "format/safetensors/safetensors_folder.h"
#include "model/blueprint.h"
#include "model/import/hugging_face_import.h"
#include "model/import/predictor_file.h"
#include "model/import/weights/int4_matrix.h"
#include "model/import/weights/quantization_scheme.h"

namespace aerie {

struct HeadFileOptions {
  // The type in which matrices are handed out: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0.
  // Those whose rows are not whole blocks become BF16 if they are that, F16 otherwise; vectors,
  // norms and tensors of more dimensions stay as they are. None: what "draft_type" in config.json
  // says, or their own.
  std::optional<DType> dtype;
  // For converting; must outlive the file. Null: the reading thread alone.
  ThreadPool* pool = nullptr;
};

// Tensors have the names that the files give them, but for renamed prefixes, and for those of
// layers: what is "layers.N.self_attn.q_proj.weight" by Llama's rules after renaming is
// "blk.N.attn_q.weight" here, as in a GGUF file. Rows of queries and keys lie as they do in the
// files (kernels::RopeStyle::kHalves). Sizes of a shape are GGUF's, the innermost first. Tensors of
// other types than F32, F16 and BF16 are listed, without a dtype. But where config.json has a
// quantization_config, tensors "X.weight" in 8 bits are read with their scales
// (model/import/weights/quantization_scheme.h), which are not listed.
//
// Of a configuration of Llama's shape there are metadata under "llama.", made of config.json or, in
// the format of the package speculators, of its "transformer_layer_config" (of "model" in vLLM's);
// and rope_freqs.weight or rope_factors_*.weight, if rotary embedding is scaled so and there are
// layers.
//
// Of a GGUF file, and of a folder whose family reads its modules for multi-token prediction, there
// are these modules alone, as PredictorFile has them: is_of_model().
//
// rename_prefix() and keep_rows() are for one thread, and what tensors() and find_tensor() gave
// before does not hold after them; values that were read do. Then it is a ModelFile like others.
class HeadFile final : public ModelFile {
 public:
  // A folder with safetensors of whatever name (SafetensorsFolder::open_any()), or one such file;
  // config.json lies beside it, or is missing. kUnsupported for a folder that holds only PyTorch's
  // files, saying which command converts them, for tensors without elements or of more than four
  // dimensions, and for a quantization_config or a draft_type that is not supported. kInvalidData
  // for scales that do not fit.
  static Expected<std::unique_ptr<HeadFile>> open(const std::string& path, HeadFileOptions options);

  // Whether it is the modules of a model's file.
  bool is_of_model() const { return predictors_ != nullptr; }

  // An empty object if there is none.
  const Json& config() const { return *config_; }
  // The same for messages and checked access.
  JsonObject config_object() const;

  // Names that start with `from` start with `to` instead. The first of several that fits a name
  // counts, in the order in which they were added. kInvalidData if two tensors come to the same
  // name.
  Status rename_prefix(std::string_view from, std::string_view to);

  // Of this matrix, or vector, only the rows `ids` are there, in that order: a pruned vocabulary.
  // kNotFound if there is no such tensor, kInvalidArgument if an id is not one of its rows,
  // kUnsupported for one that is not of floats.
  Status keep_rows(std::string_view name, std::vector<int32_t> ids);

  // The values of a tensor of integers or booleans. kNotFound, kUnsupported as read_integers().
  Expected<std::vector<int64_t>> integers(std::string_view name) const;

  // What the metadata come to: a transformer whose queries and keys turn by halves; each head of
  // them is normed if the first layer has tensors for that. The vocabulary is vocab_size of the
  // configuration; whether the layers it counts are there is for the caller to see. An error if the
  // configuration is not one of Llama's shape that is supported. PredictorFile::blueprint() of the
  // modules of a model's file.
  Expected<Blueprint> blueprint() const;

  std::string format() const override;
  int64_t file_bytes() const override;
  Status check_intact() const override;
  void release(const TensorView& view) const override;
  std::vector<SourceFile> sources() const override;
  std::string origin_of(std::string_view name) const override;
  std::string origin_of_key(std::string_view key) const override;

 private:
  // A tensor of the files, one of a model's modules, or one that the import made.
  struct Entry {
    const SafetensorsTensor* tensor = nullptr;
    const TensorInfo* of_model = nullptr;
    std::optional<DType> stored;  // before conversion; none: not of floats
    bool scaled = false;          // in 8 bits
    std::optional<Int4Matrix> packed = {};
    size_t made = 0;
    std::string name;
    std::vector<int32_t> rows;  // empty: all
    std::string source;         // for sources(): which rows
  };

  HeadFile(std::string name, std::optional<SafetensorsFolder> tensors,
           std::shared_ptr<const Json> config, std::string config_file,
           const HeadFileOptions& options);
  static Expected<std::unique_ptr<HeadFile>> of_model(std::unique_ptr<ModelFile> model, Json config,
                                                      const std::string& config_file,
                                                      const HeadFileOptions& options);
  Status import_shape();
  Status list_tensors();
  Status list_tensor(const SafetensorsTensor& tensor);
  Status name_tensors();
  std::string name_in_layer(std::string name) const;
  TensorInfo describe(const Entry& entry) const;
  std::string stored_name(const Entry& entry) const;
  std::vector<int64_t> stored_shape(const Entry& entry) const;
  Expected<TensorData> read_stored(const Entry& entry) const;
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;
  Entry* find_entry(std::string_view name);
  Status refuse(StatusCode code, std::string_view tensor, std::string_view why) const;

  std::optional<SafetensorsFolder> tensors_;
  std::unique_ptr<PredictorFile> predictors_;  // instead of tensors_
  std::shared_ptr<const Json> config_;
  std::string config_file_, config_text_;
  HeadFileOptions options_;
  QuantizationScheme scheme_;
  std::optional<HuggingFaceImport> import_;
  Status shape_;  // why there are no metadata
  std::map<std::string, std::string, std::less<>> layer_rules_;
  std::vector<std::pair<std::string, std::string>> prefixes_;
  Metadata shape_metadata_;
  std::vector<Entry> entries_;  // those of tensors(), in their order
};

}  // namespace aerie
