#include "draft/heads/heads.h"

#include <algorithm>
#include <cassert>

#include "draft/heads/eagle.h"
#include "draft/heads/eagle3.h"
#include "draft/heads/hydra.h"
#include "draft/heads/medusa.h"
#include "draft/heads/mlp_speculator.h"
#include "draft/heads/redrafter.h"

namespace aerie {
namespace {

using Loaded = Expected<std::unique_ptr<FeatureHead>>;

Loaded load_eagle(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  return load_eagle_head(file, target, settings);
}

Loaded load_eagle3(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  Eagle3Options options;
  static_cast<HeadOptions&>(options) = settings;
  options.norm_before_residual = settings.norm_before_residual;
  if (settings.parallel.value_or(drafts_in_parallel(file)))
    options.parallel_depths = settings.depth;
  return load_eagle3_head(file, target, options);
}

Loaded load_mtp(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  MtpOptions options;
  static_cast<HeadOptions&>(options) = settings;
  static_cast<MtpSwitches&>(options) = settings.mtp;
  return load_mtp_head(file, target, options);
}

template <typename Options>
Options to_depth(const HeadSettings& settings) {
  Options options;
  static_cast<HeadOptions&>(options) = settings;
  options.depth = settings.depth;
  return options;
}

Loaded load_medusa(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  return load_medusa_head(file, target, to_depth<MedusaOptions>(settings));
}

Loaded load_mlp_speculator(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  return load_mlp_speculator_head(file, target, settings);
}

Loaded load_redrafter(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  return load_redrafter_head(file, target, settings);
}

Loaded load_hydra(HeadFile& file, const HeadTarget& target, const HeadSettings& settings) {
  return load_hydra_head(file, target, to_depth<HydraOptions>(settings));
}

struct Family {
  std::string_view method;
  Loaded (*load)(HeadFile& file, const HeadTarget& target, const HeadSettings& settings);
};

constexpr Family kFamilies[] = {
    {"eagle", load_eagle},                    // EAGLE, EAGLE-2, HASS
    {"eagle3", load_eagle3},                  // EAGLE-3, P-EAGLE
    {"medusa", load_medusa},                  // Medusa
    {"hydra", load_hydra},                    // Hydra, Hydra++
    {"mlp_speculator", load_mlp_speculator},  // MLPSpeculator
    {"redrafter", load_redrafter},            // ReDrafter
    {"mtp", load_mtp},                        // modules for multi-token prediction
};

const Family* find_family(std::string_view method) {
  const auto* found =
      std::ranges::find_if(kFamilies, [&](const Family& f) { return f.method == method; });
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace

bool is_head_method(std::string_view method) {
  return find_family(method) != nullptr;
}

Loaded load_head(std::string_view method, HeadFile& file, const HeadTarget& target,
                 const HeadSettings& settings) {
  const Family* family = find_family(method);
  assert(family != nullptr);
  return family->load(file, target, settings);
}

}  // namespace aerie
