#include "engine/engine_options.h"

#include <algorithm>
#include <string_view>

#include "base/errors.h"
#include "draft/custom.h"
#include "engine/placement/device_choice.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

Status unknown(std::string_view option, std::string_view value, std::string_view known) {
  return invalid_argument("{} '{}': give {}", option, value, known);
}

Expected<kernels::Isa> parse_isa(const std::string& name) {
  if (name == "auto") return kernels::best_isa();
  std::string known = "auto";
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (name == kernels::isa_name(isa)) return isa;
    known.append(", ").append(kernels::isa_name(isa));
  }
  return unknown("isa", name, known);
}

Expected<kernels::KvType> parse_cache_type(const std::string& name) {
  std::string known;
  for (const kernels::KvType type : kernels::kAllKvTypes) {
    if (name == kernels::kv_type_name(type)) return type;
    if (!known.empty()) known += " or ";
    known += kernels::kv_type_name(type);
  }
  return unknown("cache_type", name, known);
}

// Either form.
Expected<SpeculativeConfig> parse_speculation(const char* option, const std::string& text) {
  const bool json = text.starts_with('{') || text.starts_with('[');
  return in_context(json ? parse_speculative_json(text) : parse_speculative_spec(text), option);
}

bool names_custom(const SpeculativeConfig& config) {
  return std::ranges::any_of(config.methods, [](const MethodConfig& method) {
    return method.method->name == kCustomName;
  });
}

Status take_drafter(const OpenOptions& options, EngineOptions& out) {
  out.custom_drafter = options.drafter;
  const bool named =
      names_custom(out.speculation) || std::ranges::any_of(out.more_speculations, names_custom);
  if (named && options.drafter == nullptr) {
    return invalid_argument("speculate: method {} needs a drafter, and none was given",
                            kCustomName);
  }
  if (!named && options.drafter != nullptr) {
    return invalid_argument("a drafter was given, and speculate '{}' does not name method {}",
                            options.speculate, kCustomName);
  }
  return {};
}

}  // namespace

Expected<EngineOptions> parse_options(const OpenOptions& options) {
  AERIE_RETURN_IF_ERROR(add_custom_method());
  EngineOptions out;
  out.model = options.model;
  if (!options.type.empty()) {
    out.weight_type = dtype_from_name(options.type);
    if (!out.weight_type || !can_quantize(*out.weight_type)) {
      return unknown("type", options.type, "one of " + quantizable_types());
    }
  }
  out.context = options.context;
  out.threads = options.threads;
  out.prefill_chunk = options.prefill_chunk;
  AERIE_ASSIGN_OR_RETURN(out.isa, parse_isa(options.isa));
  AERIE_ASSIGN_OR_RETURN(out.device, in_context(parse_device(options.device), "device"));
  out.weight_cache = options.weight_cache;
  AERIE_ASSIGN_OR_RETURN(out.cache_type, parse_cache_type(options.cache_type));
  AERIE_ASSIGN_OR_RETURN(out.speculation, parse_speculation("speculate", options.speculate));
  for (const std::string& more : options.more_speculations) {
    AERIE_ASSIGN_OR_RETURN(out.more_speculations.emplace_back(),
                           parse_speculation("more_speculations", more));
  }
  AERIE_RETURN_IF_ERROR(take_drafter(options, out));
  out.profile = options.profile;
  if (options.speculate == OpenOptions().speculate) out.profile_use.emplace();
  AERIE_ASSIGN_OR_RETURN(out.rule, in_context(verify_rule_from_name(options.verify), "verify"));
  out.reuse_prefixes = options.prefix_cache;
  return out;
}

}  // namespace aerie
