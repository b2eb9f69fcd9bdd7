#include "tests/model/batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>

#include "model/device/load_device_model.h"
#include "tests/testing/sweeps.h"

namespace aerie {
namespace {

constexpr int kVocab = 80;

ModelOptions options_of(kernels::Isa isa, int threads) {
  ModelOptions options = test::model_options(threads, isa);
  options.max_rows = Bench::kPositions;
  options.max_logits = Bench::kPositions;
  options.max_positions = Bench::kPositions;
  return options;
}

std::unique_ptr<Model> load(const ModelFile& file, const ModelOptions& options) {
  auto model = load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

std::unique_ptr<Model> load_on(const ModelFile& file, const ModelOptions& options,
                               device::Device& device, int first_layer) {
  auto model = load_device_model(file, options, device, first_layer);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

ModelOptions with_backend(ModelOptions options, const kernels::Backend& backend) {
  options.backend = &backend;
  return options;
}

}  // namespace

Bench::Bench(std::unique_ptr<Model> model, const ModelOptions& options, int sequences)
    : model_(std::move(model)),
      options_(options),
      owned_cache_(make_cache(*model_, {.positions = int64_t{kPositions} * sequences,
                                        .sequences = sequences})
                       .value()),
      cache_(*owned_cache_) {}

Bench::Bench(const ModelFile& file, kernels::Isa isa, int threads, int sequences)
    : Bench(load(file, options_of(isa, threads)), options_of(isa, threads), sequences) {}

Bench::Bench(const ModelFile& file, const kernels::Backend& backend, int threads, int sequences)
    : Bench(load(file, with_backend(options_of(backend.isa(), threads), backend)),
            options_of(backend.isa(), threads), sequences) {}

Bench::Bench(const ModelFile& file, device::Device& device, int sequences, int first_layer)
    : Bench(load_on(file, options_of(kernels::best_isa(), 1), device, first_layer),
            options_of(kernels::best_isa(), 1), sequences) {}

int32_t Bench::add_sequence(KvCache::Id id, int rows) {
  EXPECT_TRUE(cache_.reserve(id, rows).ok());
  batch_.sequences.push_back({cache_.pages(id), cache_.committed(id), id});
  batch_.tap_layers.resize(static_cast<size_t>(model_->config().layers) + 1);
  for (size_t l = 0; l < batch_.tap_layers.size(); ++l) {
    batch_.tap_layers[l] = static_cast<int32_t>(l);
  }
  return static_cast<int32_t>(batch_.sequences.size()) - 1;
}

void Bench::add_chain(KvCache::Id id, std::span<const int32_t> tokens) {
  TokenTree tree;
  for (size_t i = 1; i < tokens.size(); ++i) tree.add(tokens[i], static_cast<int32_t>(i) - 2);
  add_tree(id, tokens[0], tree);
}

void Bench::add_tree(KvCache::Id id, int32_t root, const TokenTree& tree) {
  const int32_t sequence = add_sequence(id, 1 + tree.size());
  const auto first = static_cast<int32_t>(batch_.rows.size());
  BatchRow row;
  row.sequence = sequence;
  row.token = root;
  row.position = cache_.committed(id);
  row.slot = cache_.slot(id, 0);
  row.wants_logits = row.wants_taps = row.wants_state = true;
  batch_.rows.push_back(row);
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    row.token = node.token;
    row.position = cache_.committed(id) + node.depth;
    row.slot = cache_.slot(id, 1 + i);
    row.parent = first + 1 + node.parent;
    batch_.rows.push_back(row);
  }
}

std::vector<RowOutputs> Bench::run() {
  const Status status = check_batch(batch_, model_->config(), options_);
  EXPECT_TRUE(status.ok()) << status.message();
  const ForwardOutputs outputs = model_->forward(batch_, cache_);
  EXPECT_TRUE(outputs.status.ok()) << outputs.status.message();
  std::vector<RowOutputs> rows;
  int logits = 0, taps = 0, states = 0;
  for (const BatchRow& row : batch_.rows) {
    RowOutputs& out = rows.emplace_back();
    if (row.wants_logits) {
      const auto of = outputs.logits_of(logits++);
      out.logits.assign(of.begin(), of.end());
    }
    if (row.wants_taps) {
      const auto of = outputs.taps_of(taps++);
      out.taps.assign(of.begin(), of.end());
    }
    if (row.wants_state) {
      const auto of = outputs.state_of(states++);
      out.state.assign(of.begin(), of.end());
    }
  }
  if (outputs.source == nullptr) {
    EXPECT_EQ(outputs.logits.size(), static_cast<size_t>(logits * outputs.vocab));
  }
  EXPECT_EQ(outputs.taps.size(), static_cast<size_t>(taps * outputs.tap_width));
  EXPECT_EQ(outputs.states.size(), static_cast<size_t>(states * outputs.state_width));
  batch_.clear();
  return rows;
}

std::vector<RowOutputs> Bench::read(KvCache::Id id, std::span<const int32_t> tokens, int chunk,
                                    bool settled) {
  std::vector<RowOutputs> rows;
  for (size_t from = 0; from < tokens.size();) {
    const size_t count = std::min(static_cast<size_t>(chunk), tokens.size() - from);
    add_chain(id, tokens.subspan(from, count));
    if (settled) batch_.sequences.back().settled = static_cast<int32_t>(count);
    for (RowOutputs& row : run()) rows.push_back(std::move(row));
    cache_.commit_first(id, static_cast<int>(count));
    from += count;
  }
  return rows;
}

const test::TinyFile& file_of(DType dtype) {
  static std::map<DType, test::TinyFile> files;
  if (const auto found = files.find(dtype); found != files.end()) return found->second;
  test::TinySpec spec;
  spec.dtype = dtype;
  spec.vocab = kVocab;
  if (dtype_info(dtype).block_elements > 32) {
    spec.layers = 1;
    spec.hidden = 256;
    spec.heads = 8;
    spec.kv_heads = 1;
    spec.head_dim = 32;
    spec.ffn = 256;
  }
  return files.try_emplace(dtype, spec).first->second;
}

int vocab_of_files() {
  return kVocab;
}

std::string isa_and_type_name(const testing::TestParamInfo<IsaAndType>& param) {
  return std::string(kernels::isa_name(std::get<0>(param.param))) + "_" +
         std::string(dtype_info(std::get<1>(param.param)).name);
}

std::vector<IsaAndType> every_isa_and_type() {
  std::vector<IsaAndType> all;
  if (test::thinned() && !test::nightly()) {
    // The reference, which is the last, only where there is nothing else.
    std::vector<kernels::Isa> at_hand;
    std::ranges::copy_if(kernels::built_isas(), std::back_inserter(at_hand),
                         kernels::isa_supported);
    if (at_hand.size() > 1) at_hand.pop_back();
    for (size_t i = 0; i < kDTypeCount; ++i) {
      all.emplace_back(at_hand[i % at_hand.size()], static_cast<DType>(i));
    }
    return all;
  }
  for (const DType type : {DType::kF32, DType::kQ4_1, DType::kQ6_K}) {
    all.emplace_back(kernels::Isa::kReference, type);
  }
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (isa == kernels::Isa::kReference) continue;
    for (int i = 0; i < kDTypeCount; ++i) all.emplace_back(isa, static_cast<DType>(i));
  }
  return all;
}

TokenTree random_tree(uint64_t seed, int nodes, int vocab) {
  std::mt19937_64 random(seed);
  TokenTree tree;
  for (int i = 0; i < nodes; ++i) {
    const auto any = static_cast<int32_t>(random() % static_cast<uint64_t>(i + 1)) - 1;
    const int32_t parent = random() % 3 == 0 ? any : i - 1;
    tree.add(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)), parent);
  }
  return tree;
}

std::vector<int32_t> path_to(const TokenTree& tree, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.nodes[static_cast<size_t>(node)].parent) path.push_back(1 + node);
  path.push_back(0);
  return {path.rbegin(), path.rend()};
}

}  // namespace aerie
