#include "tests/testing/tiny_heads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <utility>

#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/heads/heads.h"
#include "tests/testing/heads/head_writer.h"

namespace aerie::test {
namespace {

namespace fs = std::filesystem;

struct FamilyNames {
  const char* name;
  const char* method;
};

FamilyNames names_of(HeadFamily family) {
  constexpr FamilyNames kNames[] = {{"Eagle", "eagle"},         {"Eagle3", "eagle3"},
                                    {"Eagle3Pruned", "eagle3"}, {"PEagle", "eagle3"},
                                    {"Medusa", "medusa"},       {"Hydra", "hydra"},
                                    {"HydraPrefix", "hydra"},   {"MlpSpeculator", "mlp_speculator"},
                                    {"Redrafter", "redrafter"}, {"Mtp", "mtp"},
                                    {"Dflash", "dflash"},       {"Dspark", "dspark"}};
  return kNames[static_cast<size_t>(family)];
}

}  // namespace

const char* head_family_name(HeadFamily family) {
  return names_of(family).name;
}

const char* head_family_method(HeadFamily family) {
  return names_of(family).method;
}

TinyHead::TinyHead(const ModelFile& target, HeadFamily family, bool agrees)
    : target_(target), family_(family), agrees_(agrees) {
  static int count = 0;
  path_ = (fs::path(testing::TempDir()) /
           fmt::format("aerie_{}_head_{}_{}", getpid(), count++, head_family_name(family)))
              .string();
  write_head(target, family, agrees, path_);
}

TinyHead::TinyHead(const ModelFile& target, HeadFamily family, std::string path)
    : target_(target), family_(family), agrees_(false), path_(std::move(path)), written_(false) {}

TinyHead::~TinyHead() {
  if (!written_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

int TinyHead::target_vocab() const {
  return read_model_config(target_)->vocab;
}

std::unique_ptr<Drafter> TinyHead::drafter(const Model& model, const TinyHeadRun& run) {
  FeatureNetworkOptions options;
  options.drafter = run.drafter;
  options.drafter.method = head_family_method(family_);
  options.drafter.vocab = model.config().vocab;
  options.drafter.max_rows = 48;  // the prompt takes several passes
  const auto sequences = static_cast<unsigned>(options.drafter.max_sequences);
  options.drafter.max_logits =
      std::max(most_nodes_in_pass(options.drafter),
               draft_depth(options.drafter) * static_cast<int>(std::bit_ceil(sequences)));
  options.max_positions = run.max_positions;
  options.cache_type = run.cache_type;
  HeadTarget target;
  target.parts =
      run.on_processor || model.device_parts().device == nullptr ? model.parts() : ModelParts();
  target.config = &model.config();
  target.file = &target_;
  target.backend = kernels::backend(kernels::best_isa());
  target.pool = run.pool;
  target.max_rows = options.drafter.max_rows;
  target.max_logits = options.drafter.max_logits;
  target.max_positions = run.max_positions + kMostHeadDepth;
  target.ranks = options.drafter.shape != nullptr ? options.drafter.shape->most_ranks()
                                                  : options.drafter.top_k;
  if (target.parts.weights == nullptr) put_on_device(model.device_parts(), target);
  HeadSettings settings;
  settings.depth = draft_depth(options.drafter);
  auto file = HeadFile::open(path_, {});
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  files_.push_back(std::move(*file));
  auto head = load_head(options.drafter.method, *files_.back(), target, settings);
  EXPECT_TRUE(head.ok()) << head.status().message();
  if (!head.ok()) return nullptr;
  if (target.device != nullptr) {
    EXPECT_TRUE(target.device->packer->status().ok());
    target.device->packer.reset();
  }
  auto network = make_feature_network(std::move(*head), options);
  EXPECT_TRUE(network.ok()) << network.status().message();
  if (!network.ok()) return nullptr;
  return make_network_drafter(std::move(*network), options.drafter);
}

const TinyFile& easy_file() {
  TinySpec spec;
  spec.vocab = 48;
  spec.seed = 4;  // says sixteen different tokens at temperature 0
  spec.weight_scale = 0.3;
  spec.head_scale = 4.0;
  static const TinyFile file(spec);
  return file;
}

TinyHead& easy_head(HeadFamily family, bool agrees) {
  static std::map<std::pair<HeadFamily, bool>, std::unique_ptr<TinyHead>> heads;
  std::unique_ptr<TinyHead>& head = heads[{family, agrees}];
  if (head == nullptr) head = std::make_unique<TinyHead>(easy_file().gguf(), family, agrees);
  return *head;
}

}  // namespace aerie::test
