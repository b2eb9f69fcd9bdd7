// Draft heads of a few thousand weights in their public formats, as folders for the real loaders:
// random ones, whose drafts are wrong, and ones that are written down so that most are right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "draft/drafter.h"
#include "draft/network/network_drafter.h"
#include "format/model_file.h"
#include "kernels/kv_layout.h"
#include "model/import/head_file.h"
#include "model/model.h"
#include "tests/testing/tiny_model.h"

namespace aerie::test {

enum class HeadFamily {
  kEagle,
  kEagle3,
  kEagle3Pruned,  // three of four tokens, with d2t
  kPEagle,        // EAGLE-3 with mask_hidden
  kMedusa,
  kHydra,
  kHydraPrefix,  // Hydra++
  kMlpSpeculator,
  kRedrafter,
  kMtp,  // two modules, in DeepSeek's layout
  kDflash,
  kDspark,
};
inline constexpr HeadFamily kHeadFamilies[] = {
    HeadFamily::kEagle,       HeadFamily::kEagle3,        HeadFamily::kEagle3Pruned,
    HeadFamily::kPEagle,      HeadFamily::kMedusa,        HeadFamily::kHydra,
    HeadFamily::kHydraPrefix, HeadFamily::kMlpSpeculator, HeadFamily::kRedrafter,
    HeadFamily::kMtp,         HeadFamily::kDflash,        HeadFamily::kDspark};
const char* head_family_name(HeadFamily family);    // "Eagle3Pruned"
const char* head_family_method(HeadFamily family);  // "eagle3"

// Nodes that a path of these heads can have, where their family knows a limit.
inline constexpr int kTinyHeadDepth = 5;

struct TinyHeadRun {
  // method, vocab, max_rows and max_logits are filled in.
  NetworkDrafterOptions drafter;
  int max_positions = 0;
  ThreadPool* pool = nullptr;
  kernels::KvType cache_type = kernels::KvType::kF16;
  bool on_processor = false;  // though a device computes the target
};

class TinyHead {
 public:
  // Writes it to a temporary folder. A random head fits any target, one that agrees a Llama that
  // says little but what its embedding and its output matrix say, with fewer tokens than hidden
  // values. Fails the test for any error.
  TinyHead(const ModelFile& target, HeadFamily family, bool agrees);
  // One that is there: a folder or a file, which stays.
  TinyHead(const ModelFile& target, HeadFamily family, std::string path);
  ~TinyHead();  // removes the folder that was written
  TinyHead(const TinyHead&) = delete;
  TinyHead& operator=(const TinyHead&) = delete;

  HeadFamily family() const { return family_; }
  bool agrees() const { return agrees_; }
  const std::string& path() const { return path_; }
  int target_vocab() const;

  // As the engine makes one. `model` is the target's; both outlive the drafter.
  std::unique_ptr<Drafter> drafter(const Model& model, const TinyHeadRun& run);

 private:
  const ModelFile& target_;
  HeadFamily family_;
  bool agrees_;
  std::string path_;
  bool written_ = true;
  std::vector<std::unique_ptr<HeadFile>> files_;  // of drafters
};

// A target whose next token hangs on the last one, and a little on those before it.
const TinyFile& easy_file();
// Heads for it, which live as long as the program.
TinyHead& easy_head(HeadFamily family, bool agrees);

}  // namespace aerie::test
