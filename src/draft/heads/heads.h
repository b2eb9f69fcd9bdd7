// The families of trained heads: one line each in heads.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "draft/heads/mtp.h"
#include "model/import/head_file.h"

namespace aerie {

// What a user can say about a head, whatever its family.
struct HeadSettings : HeadOptions {
  int depth = 5;  // of drafts: for heads that draft several depths at once
  // EAGLE-3: all depths in one pass (P-EAGLE), or not; not given: as it was trained.
  std::optional<bool> parallel;
  std::optional<bool> norm_before_residual;  // EAGLE-3: instead of what the configuration says
  MtpSwitches mtp;
};

// Whether `method` is a family's: "eagle3".
bool is_head_method(std::string_view method);

// Requires is_head_method(method). The file must outlive the head.
Expected<std::unique_ptr<FeatureHead>> load_head(std::string_view method, HeadFile& file,
                                                 const HeadTarget& target,
                                                 const HeadSettings& settings);

}  // namespace aerie
