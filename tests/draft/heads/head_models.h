// A target from a file and a head beside it, as the tests of heads need them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/heads.h"
#include "draft/network/draft_network.h"
#include "format/model_file.h"
#include "model/import/head_file.h"
#include "model/model.h"

namespace aerie::test {

class HeadModels {
 public:
  // Fails the test if the target cannot be loaded. Of a device: that computes it and its heads.
  explicit HeadModels(const std::string& target, device::Device* device = nullptr);

  Model& target() { return *model_; }
  HeadTarget head_target() const;
  static constexpr int kPositions = 256;  // the longest sequence
  static constexpr int kRanks = 3;        // HeadTarget::ranks

  // A head of the family `method` from a folder.
  Expected<std::unique_ptr<FeatureHead>> load(const std::string& method, const std::string& path,
                                              const HeadSettings& settings = {});
  // The same in a network, with FeatureNetworkOptions::ahead. Fails the test if it cannot be.
  std::unique_ptr<DraftNetwork> network(const std::string& method, const std::string& path,
                                        const NetworkDrafterOptions& drafter,
                                        HeadSettings settings = {}, bool ahead = true);

  // What the target's layers give for a text: [tokens][taps][hidden].
  std::vector<float> taps(const std::vector<int32_t>& text, const std::vector<int32_t>& layers);

 private:
  ThreadPool pool_;
  std::unique_ptr<ModelFile> file_;
  std::unique_ptr<Model> model_;
  std::vector<std::unique_ptr<HeadFile>> heads_;
};

// Folders in `folder` with a golden.json, by name, and what a test of one is called.
std::vector<std::string> golden_cases(const std::string& folder);
std::string golden_test_name(const testing::TestParamInfo<std::string>& info);

// What a states.safetensors has of these layers: [tokens][taps][hidden]; empty if there is no such
// file.
std::vector<float> recorded_taps(const std::string& path, const std::vector<int32_t>& layers);

}  // namespace aerie::test
