#include "measure/doctor/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace aerie::measure {
namespace {

constexpr int kMostPassContext = 1024;
constexpr double kTight = 0.9;        // of the available memory
constexpr double kWorthSaying = 1.1;  // times as fast
constexpr int64_t kLittleSpace = int64_t{1} << 30;

double gibibytes_of(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

void add_instructions(const MachineFacts& machine, std::vector<Finding>& out) {
  // What tells that the processor has an instruction set, the fastest first.
  struct Tell {
    const char* feature;
    kernels::Isa isa;
  };
  constexpr Tell kTells[] = {
      {"amx_int8", kernels::Isa::kAmx},      {"avx512_vnni", kernels::Isa::kAvx512},
      {"avx512bw", kernels::Isa::kAvx512Bw}, {"avx_vnni", kernels::Isa::kAvxVnni},
      {"avx2", kernels::Isa::kAvx2},         {"asimddp", kernels::Isa::kNeon}};
  for (const auto& [feature, isa] : kTells) {
    if (!has_word(machine.features, feature)) continue;
    if (has_word(machine.built, kernels::isa_name(isa))) break;
    out.push_back(
        {Severity::kProblem,
         fmt::format("the processor has {}, which this build leaves out", kernels::isa_name(isa)),
         "matrix products take longer than they have to",
         "build Aerie on this kind of processor with a compiler that knows it"});
    break;
  }
  if (machine.isa == kernels::Isa::kReference) {
    out.push_back({Severity::kProblem, "no vector instructions are used",
                   "everything takes many times as long",
                   "take a processor with AVX2, AVX-512 or NEON with the dot product"});
  }
}

void add_threads(const MachineFacts& machine, std::vector<Finding>& out) {
  const Topology& topology = machine.topology;
  const int threads = machine.threads;
  const std::string what = fmt::format("{} threads for {} processors, {} cores", threads,
                                       topology.usable, topology.cores);
  const std::string advice = fmt::format("run with --threads {}", topology.threads());
  if (topology.quota > 0 && threads > topology.quota) {
    out.push_back({Severity::kProblem,
                   fmt::format("{} threads share the time of {:.2f} processors that the container "
                               "gets",
                               threads, topology.quota),
                   "once it is used up, all of them stand still until the next period",
                   topology.threads() < threads
                       ? advice + ", or raise the container's quota"
                       : "raise the container's quota to a whole processor"});
  } else if (threads > topology.usable) {
    out.push_back({Severity::kProblem, what,
                   "every step waits for the thread that waits for a processor", advice});
  } else if (threads > topology.performance_cores) {
    out.push_back({Severity::kHint, what,
                   "every step waits for a thread that shares a core or has an efficiency core",
                   fmt::format("compare with --threads {}", topology.threads())});
  } else if (threads < topology.threads()) {
    out.push_back(
        {Severity::kHint, what, "prompts and passes of many rows could be faster", advice});
  }
}

void add_processors(const MachineFacts& machine, std::vector<Finding>& out) {
  add_threads(machine, out);
  const Topology& topology = machine.topology;
  if (topology.usable < topology.processors) {
    out.push_back({Severity::kHint,
                   fmt::format("this process may use {} of {} processors", topology.usable,
                               topology.processors),
                   "the others are left idle, or to others", "see taskset and the container"});
  }
}

void add_huge_pages(const MachineFacts& machine, std::vector<Finding>& out) {
  if (machine.huge_pages == "always" || machine.huge_pages == "madvise") {
    out.push_back({Severity::kGood, fmt::format("huge pages: {}", machine.huge_pages),
                   "weights and cache are asked for in pages of 2 MiB", ""});
    return;
  }
  out.push_back({Severity::kProblem,
                 machine.huge_pages.empty() ? "the system has no transparent huge pages"
                                            : "transparent huge pages are switched off",
                 "each 4 KiB of weights costs the processor a look into the page tables",
                 "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
}

void add_space(const MachineFacts& machine, std::vector<Finding>& out) {
  if (machine.swap > 0 && machine.free_swap >= 0 && machine.free_swap < machine.swap / 2) {
    out.push_back({Severity::kProblem, "more than half of the swap space is in use",
                   "what was swapped out is read back page by page",
                   "end what takes the memory, or run Aerie on another machine"});
  }
  for (const Folder& folder : machine.folders) {
    if (folder.free < 0 || folder.free >= kLittleSpace) continue;
    out.push_back({Severity::kHint,
                   fmt::format("{} has {:.2f} GiB free", folder.path, gibibytes_of(folder.free)),
                   fmt::format("{} may not fit", folder.what),
                   "make room, or name another folder"});
  }
}

// As many tokens as the caches could hold in what the rest leaves.
std::string smaller_context(const ModelFacts& model, int64_t available) {
  const std::string smaller = model.drafters.empty()
                                  ? "take a smaller model or fewer bits (--type)"
                                  : "take a smaller model or drafter, or fewer bits (--type)";
  int64_t caches = model.cache_bytes;
  for (const DrafterFacts& drafter : model.drafters) caches += drafter.cache_bytes;
  const int64_t left = available - (model.bytes() - caches);
  if (left <= 0 || caches <= 0) return smaller;
  const double share = static_cast<double>(left) / static_cast<double>(caches);
  const int fitting = static_cast<int>(0.9 * share * model.context) / 64 * 64;
  if (fitting < 64) return smaller;
  return fmt::format("run with --ctx {}, or --cache-type q8", fitting);
}

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kGood:
      return "good";
    case Severity::kHint:
      return "hint";
    case Severity::kProblem:
      return "problem";
    case Severity::kFatal:
      break;
  }
  return "fatal";
}

bool Diagnosis::can_run() const {
  return std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.severity == Severity::kFatal; });
}

std::vector<std::string> unused_features(const MachineFacts& machine) {
  std::vector<std::string> unused;
  for (const char* feature : {"amx_bf16", "avx512_fp16", "sve", "i8mm"}) {
    if (has_word(machine.features, feature)) unused.emplace_back(feature);
  }
  return unused;
}

std::vector<Finding> machine_findings(const MachineFacts& machine) {
  std::vector<Finding> out;
  add_instructions(machine, out);
  add_processors(machine, out);
  add_huge_pages(machine, out);
  add_space(machine, out);
  return out;
}

std::vector<Finding> memory_findings(const ModelFacts& model, const MachineFacts& machine) {
  if (machine.available < 0) return {};
  const std::string sizes =
      fmt::format("{:.2f} GiB are needed and {:.2f} GiB available", gibibytes_of(model.bytes()),
                  gibibytes_of(machine.available));
  const bool alone = model.drafters.empty();
  if (model.bytes() > machine.available) {
    return {
        {Severity::kFatal,
         (alone ? "the model does not fit: " : "the model and its drafters do not fit: ") + sizes,
         alone ? "it would not be opened" : "they would not be opened",
         smaller_context(model, machine.available)}};
  }
  if (static_cast<double>(model.bytes()) > kTight * static_cast<double>(machine.available)) {
    return {
        {Severity::kProblem,
         (alone ? "the model fits barely: " : "the model and its drafters fit barely: ") + sizes,
         alone ? "a draft model or other programs would take the rest"
               : "other programs would take the rest",
         smaller_context(model, machine.available)}};
  }
  return {{Severity::kGood,
           (alone ? "the model fits: " : "the model and its drafters fit: ") + sizes,
           "nothing has to be given up", ""}};
}

std::vector<Finding> speed_findings(const Diagnosis& diagnosis) {
  std::vector<Finding> out;
  const ExpectedPass& one = diagnosis.passes.front();
  const ExpectedPass& most = diagnosis.passes.back();
  const double ratio = most.seconds / one.seconds;
  if (one.by_memory) {
    out.push_back(
        {Severity::kHint, "plain decoding is bound by reading memory",
         fmt::format("a pass of {} rows need only take {:.2f} times one of 1", most.rows, ratio),
         ratio < most.rows / 2.0 ? "let drafts use that: --speculate auto, or a head" : ""});
  } else {
    out.push_back(
        {Severity::kHint, "plain decoding is bound by multiplying",
         fmt::format("a pass of {} rows takes at least {:.2f} times one of 1", most.rows, ratio),
         "more processors or wider instructions help, drafts hardly"});
  }
  for (const ConvertedWork& converted : diagnosis.model->conversions) {
    const double seconds =
        floor_seconds(converted.work, diagnosis.pass_context, 1, *diagnosis.limits);
    const double gain = one.seconds / seconds;
    if (gain < kWorthSaying) continue;
    out.push_back(
        {Severity::kHint,
         fmt::format("{} weights could decode up to {:.1f} times as fast", converted.type, gain),
         fmt::format("the model has {}, of which every pass reads all", diagnosis.model->type),
         fmt::format("run with --type {}; that changes what the model says a little",
                     converted.type)});
  }
  return out;
}

void diagnose(Diagnosis& diagnosis) {
  const auto add = [&](std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(diagnosis.findings));
  };
  diagnosis.passes.clear();
  diagnosis.findings.clear();
  if (!diagnosis.model_status.ok()) {
    add({{Severity::kFatal, diagnosis.model_status.message(), "it cannot run", ""}});
  }
  if (diagnosis.model) add(memory_findings(*diagnosis.model, diagnosis.machine));
  if (diagnosis.model && diagnosis.limits) {
    const PassWork& work = diagnosis.model->work;
    const Limits& limits = *diagnosis.limits;
    diagnosis.pass_context = std::min(diagnosis.model->context / 2, kMostPassContext);
    for (const int rows : {1, 4, 8}) {
      const double reading =
          work.bytes(diagnosis.pass_context, work.expected_experts(rows)) / limits.bandwidth;
      const double seconds = floor_seconds(work, diagnosis.pass_context, rows, limits);
      diagnosis.passes.push_back({rows, seconds, seconds <= reading});
    }
    add(speed_findings(diagnosis));
  }
  add(machine_findings(diagnosis.machine));
  std::ranges::stable_sort(diagnosis.findings, [](const Finding& a, const Finding& b) {
    return a.severity > b.severity;
  });
}

}  // namespace aerie::measure
