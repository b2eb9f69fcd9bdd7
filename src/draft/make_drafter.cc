#include "draft/make_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "base/log.h"
#include "draft/auto/combined.h"
#include "draft/auto/controller.h"
#include "draft/auto/draft_gate.h"

namespace aerie {

namespace {

void add_methods_of_target(const SpeculativeConfig& config, DraftHost& host,
                           std::vector<std::unique_ptr<Drafter>>& drafters) {
  if (host.target().file == nullptr) return;
  for (const MethodConfig& method : methods_of_target(config, *host.target().file)) {
    auto drafter = method.method->make(method, host);
    if (drafter.ok()) {
      drafters.push_back(*std::move(drafter));
      continue;
    }
    log(LogLevel::kWarning, fmt::format("auto drafts without method {}: {}", method.method->name,
                                        drafter.status().message()));
  }
}

}  // namespace

std::vector<MethodConfig> methods_of_target(const SpeculativeConfig& config,
                                            const ModelFile& target) {
  std::vector<MethodConfig> found;
  if (config.combination != Combination::kAuto) return found;
  for (const Method* method : methods()) {
    if (method->comes_with == nullptr || !method->comes_with(target)) continue;
    const bool named = std::ranges::any_of(
        config.methods, [&](const MethodConfig& own) { return own.method == method; });
    if (!named) found.push_back({.method = method, .numbers = {}, .texts = {}});
  }
  return found;
}

int shared_draft_sequences(const DraftTarget& target) {
  constexpr int kMost = 16;
  return std::min(target.max_sequences, kMost);
}

Expected<std::unique_ptr<Drafter>> make_drafter(const SpeculativeConfig& config, DraftHost& host) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  const bool is_alone = config.methods.size() == 1 && config.combination != Combination::kAuto;
  for (MethodConfig method : config.methods) {
    method.is_alone = is_alone;
    AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter, method.method->make(method, host));
    drafters.push_back(std::move(drafter));
  }
  add_methods_of_target(config, host, drafters);
  if (drafters.empty()) return std::unique_ptr<Drafter>();
  if (config.combination == Combination::kAuto) {
    assert(host.target().cost != nullptr);
    ControllerOptions options;
    options.max_rows = host.target().max_rows;
    options.max_nodes = config.tokens();
    return make_controller(std::move(drafters), *host.target().cost, options);
  }
  std::unique_ptr<Drafter> drafter;
  if (drafters.size() == 1) {
    drafter = std::move(drafters.front());
  } else {
    AERIE_ASSIGN_OR_RETURN(drafter, combine_drafters(std::move(drafters), config.combination));
  }
  if (!config.gated()) return drafter;
  assert(host.target().cost != nullptr);
  GateOptions options;
  options.max_rows = host.target().max_rows;
  options.max_nodes = config.tokens();
  return make_gate(std::move(drafter), *host.target().cost, options);
}

}  // namespace aerie
