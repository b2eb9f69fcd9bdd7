#include "draft/heads/head_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "draft/network/draft_vocabulary.h"
#include "format/converted_file.h"
#include "model/device/device_weights.h"
#include "tensor/dtype.h"

namespace aerie {

namespace {

Status bad(const ModelFile& head, StatusCode code, const std::string& what) {
  return {code, fmt::format("{}: {}", head.name(), what)};
}

// The target's matrix once more, cut to the vocabulary and in the options' type.
Expected<Linear> load_target_rows(const HeadTarget& target, const HeadOptions& options) {
  const ModelFile& file = *target.file;
  const char* name =
      file.find_tensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
  AERIE_ASSIGN_OR_RETURN(TensorData matrix, file.read(name));
  if (!options.vocabulary.empty()) {
    AERIE_ASSIGN_OR_RETURN(matrix, select_rows(matrix, options.vocabulary));
  }
  if (options.dtype && matrix.view.row_length() % dtype_info(*options.dtype).block_elements == 0) {
    AERIE_ASSIGN_OR_RETURN(matrix, convert_values(matrix.view, *options.dtype, target.pool));
  }
  Linear linear;
  AERIE_ASSIGN_OR_RETURN(linear.weight, target.backend->packed(*target.pool, matrix.view));
  AERIE_RETURN_IF_ERROR(file.check_intact());
  const std::vector<float>& bias = target.parts.weights->output.bias;
  if (bias.empty() || options.vocabulary.empty()) {
    linear.bias = bias;
  } else {
    for (const int32_t id : options.vocabulary)
      linear.bias.push_back(bias[static_cast<size_t>(id)]);
  }
  return linear;
}

Status check_unpruned(const HeadFile& file, const HeadOptions& options) {
  if (options.vocabulary.empty()) return {};
  return bad(file, StatusCode::kInvalidArgument,
             "its vocabulary is pruned already: leave out draft_vocab");
}

}  // namespace

ModelOptions HeadTarget::model_options() const {
  ModelOptions options;
  options.backend = backend;
  options.pool = pool;
  options.max_rows = max_rows;
  options.max_logits = max_logits;
  options.max_positions = max_positions;
  return options;
}

Status require_equal(const ModelFile& head, std::string_view what, int64_t of_head,
                     std::string_view of_what, int64_t other) {
  if (of_head == other) return {};
  return bad(head, StatusCode::kInvalidArgument,
             fmt::format("{} is {}, and {} is {}: this head is of another model", what, of_head,
                         of_what, other));
}

void slide_windows(Blueprint& blueprint, const HeadTarget& target) {
  const int context = blueprint.config.context;
  if (target.max_positions <= context) return;
  for (LayerPlan& layer : blueprint.layers) {
    if (layer.window == 0 || layer.window > context) layer.window = context;
  }
}

Expected<Blueprint> head_blueprint(const HeadFile& file, const HeadTarget& target) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, file.blueprint());
  slide_windows(blueprint, target);
  if (target.device != nullptr) AERIE_RETURN_IF_ERROR(check_device_code(blueprint));
  return blueprint;
}

Expected<Linear> load_linear(WeightLoader& loader, const std::string& name, int64_t k, int64_t n) {
  Linear linear;
  const MatrixPart part = {&linear.weight, name + ".weight", k, n, 0, n};
  AERIE_RETURN_IF_ERROR(loader.load({&part, 1}));
  AERIE_ASSIGN_OR_RETURN(linear.bias, loader.vector_if_any(name + ".bias", n));
  return linear;
}

Expected<HeadEmbedding> HeadEmbedding::load(WeightLoader& loader, const HeadFile& file,
                                            const std::string& name, int64_t width,
                                            const HeadTarget& target) {
  HeadEmbedding embedding;
  const TensorInfo* info = file.find_tensor(name);
  if (info == nullptr) {
    AERIE_RETURN_IF_ERROR(require_equal(file,
                                        "the width of its embedding (it has no table of its "
                                        "own)",
                                        width, "the target's", target.config->hidden));
    embedding.target_ = target.parts.weights;
    return embedding;
  }
  if (info->shape[1] < target.config->vocab) {
    AERIE_RETURN_IF_ERROR(require_equal(file, fmt::format("the number of rows of {}", name),
                                        info->shape[1], "the target's vocabulary",
                                        target.config->vocab));
  }
  AERIE_ASSIGN_OR_RETURN(embedding.own_, loader.table(name, width, info->shape[1]));
  return embedding;
}

void HeadEmbedding::row(int32_t token, float* out) const {
  if (target_ != nullptr) return embed_token(*target_, token, out);
  const TensorView& table = own_.view;
  dequantize(table.dtype, table.row(token), table.row_length(), out);
}

Expected<OutputHead> OutputHead::load(WeightLoader& loader, HeadFile& file, const std::string& name,
                                      int64_t width, const HeadTarget& target,
                                      const HeadOptions& options) {
  OutputHead head;
  const TensorInfo* info = file.find_tensor(name);
  const int vocab = target.config->vocab;
  if (info == nullptr) {
    AERIE_RETURN_IF_ERROR(require_equal(file, "its hidden size (it has no LM head of its own)",
                                        width, "the target's", target.config->hidden));
    head.ids_ = options.vocabulary;
    head.target_ = &target.parts.weights->output;
    const bool is_whole = head.target_->weight.part == nullptr;
    if (is_whole && options.vocabulary.empty() && !options.dtype) return head;
    AERIE_ASSIGN_OR_RETURN(head.own_, load_target_rows(target, options));
    head.target_ = nullptr;
    return head;
  }
  const int64_t rows = info->shape[1];
  const bool pruned = rows != vocab && file.find_tensor("d2t") != nullptr;
  loader.ignore("d2t");
  loader.ignore("t2d");
  if (!pruned) {
    AERIE_RETURN_IF_ERROR(require_equal(file, fmt::format("the number of rows of {}", name), rows,
                                        "the target's vocabulary", vocab));
    head.ids_ = options.vocabulary;
    AERIE_RETURN_IF_ERROR(head.load_own(loader, file, name, width, options.vocabulary));
    return head;
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> d2t, file.integers("d2t"));
  AERIE_RETURN_IF_ERROR(require_equal(file, "the length of d2t", static_cast<int64_t>(d2t.size()),
                                      "the number of rows of " + name, rows));
  AERIE_ASSIGN_OR_RETURN(head.ids_, read_draft_ids(d2t, vocab, file.name()));
  AERIE_RETURN_IF_ERROR(check_unpruned(file, options));
  AERIE_RETURN_IF_ERROR(head.load_own(loader, file, name, width, {}));
  return head;
}

Expected<OutputHead> OutputHead::load_mapped(WeightLoader& loader, HeadFile& file,
                                             const std::string& name, int64_t width,
                                             std::span<const int64_t> tokens,
                                             const HeadTarget& target, const HeadOptions& options) {
  OutputHead head;
  AERIE_RETURN_IF_ERROR(check_unpruned(file, options));
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* info, file.tensor_info(name));
  const int vocab = target.config->vocab;
  const bool whole = info->shape[1] != static_cast<int64_t>(tokens.size());
  if (whole) {
    AERIE_RETURN_IF_ERROR(require_equal(file, fmt::format("the number of rows of {}", name),
                                        info->shape[1], "the target's vocabulary", vocab));
  }
  std::vector<std::pair<int64_t, int32_t>> order;  // token, row
  order.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    order.emplace_back(tokens[i], static_cast<int32_t>(whole ? tokens[i] : int64_t(i)));
  }
  std::ranges::sort(order);
  std::vector<int32_t> rows;
  for (const auto& [token, row] : order) {
    head.ids_.push_back(static_cast<int32_t>(std::clamp<int64_t>(token, -1, vocab)));
    rows.push_back(row);
  }
  if (!are_ascending_ids(head.ids_, vocab)) {
    return bad(file, StatusCode::kInvalidData,
               fmt::format("the tokens that the rows of {} stand for are not different ones of the "
                           "target's {}",
                           name, vocab));
  }
  AERIE_RETURN_IF_ERROR(head.load_own(loader, file, name, width, rows));
  return head;
}

// The head's matrix, of which these rows; none: all.
Status OutputHead::load_own(WeightLoader& loader, HeadFile& file, const std::string& name,
                            int64_t width, const std::vector<int32_t>& rows) {
  const std::string stem = name.substr(0, name.rfind('.'));
  const std::string bias = stem + ".bias";
  if (!rows.empty()) {
    AERIE_RETURN_IF_ERROR(file.keep_rows(name, rows));
    if (file.find_tensor(bias) != nullptr) AERIE_RETURN_IF_ERROR(file.keep_rows(bias, rows));
  }
  AERIE_ASSIGN_OR_RETURN(own_, load_linear(loader, stem, width, file.find_tensor(name)->shape[1]));
  return {};
}

Status OutputHead::require_same(const OutputHead& other, const ModelFile& file) const {
  if (vocab() == other.vocab() && ids_ == other.ids_) return {};
  return bad(file, StatusCode::kInvalidData,
             fmt::format("one of its output matrices is of {} tokens and another of {}, or of "
                         "others: this is no head as they are published",
                         vocab(), other.vocab()));
}

}  // namespace aerie
