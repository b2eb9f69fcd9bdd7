#include "tools/measure/doctor_command.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "measure/doctor/doctor_report.h"
#include "tools/flags.h"
#include "tools/options.h"
#include "tools/report_file.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::string model, json;
  int context = 0, threads = 0;
  bool no_measure = false;
  EngineFlags drafters;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where models that are fetched by name are kept.
std::string model_cache() {
  if (const std::string hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  const std::string cache = variable("XDG_CACHE_HOME");
  return (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/huggingface/hub";
}

std::vector<measure::Version> versions() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const bool trains = !error && fs::exists(self.parent_path() / "aerie-train", error);
#ifdef __clang__
  const char* const compiler = "clang";
#else
  const char* const compiler = "GCC";
#endif
  return {{"aerie", AERIE_VERSION},
          {compiler, __VERSION__},
          {"glibc", gnu_get_libc_version()},
          {"libcurl", curl_version_info(CURLVERSION_NOW)->version},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100,
                              FMT_VERSION % 100)},
          {"aerie-train", trains ? "there" : "not there: no LibTorch when this was built"}};
}

// None where there is too little memory for it.
std::optional<measure::Limits> measured(kernels::Isa isa, ThreadPool& pool) {
  Progress progress("measuring the machine", 2);
  Expected<measure::Machine> machine = measure::Machine::open(isa, pool);
  if (!machine.ok()) return std::nullopt;
  std::array<bool, kernels::kDotCount> all = {};
  all.fill(true);
  progress.add(1);
  return machine->measure(all);
}

Expected<int> run(const Flags& flags, const CLI::App& app) {
  // Unless they are named, only such methods draft as need no memory to speak of.
  AERIE_ASSIGN_OR_RETURN(const SpeculativeConfig speculation,
                         read_drafter_flags(app, flags.drafters, auto_speculation()));
  AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
  measure::Diagnosis diagnosis;
  diagnosis.machine = measure::read_machine_facts(flags.threads);
  read_device_facts(diagnosis.machine);
  std::error_code error;
  diagnosis.machine.folders = {
      measure::folder_facts("temporary files", fs::temp_directory_path(error).string()),
      measure::folder_facts("models that are fetched", model_cache())};
  ThreadPool pool(diagnosis.machine.threads);
  const kernels::Isa isa = diagnosis.machine.isa;
  if (!flags.model.empty()) {
    auto model = measure::read_model_facts(flags.model, flags.context, isa, pool, speculation);
    if (model.ok()) {
      diagnosis.model = *std::move(model);
    } else {
      diagnosis.model_status = model.status();
    }
  }
  if (!flags.no_measure && diagnosis.model_status.ok()) diagnosis.limits = measured(isa, pool);
  measure::diagnose(diagnosis);
  const std::vector<measure::Version> all = versions();
  json.print_beside(to_text(diagnosis, all));
  AERIE_RETURN_IF_ERROR(json.write(to_json(diagnosis, all)));
  return diagnosis.can_run() ? 0 : 1;
}

}  // namespace

std::function<Expected<int>()> add_doctor_flags(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("MODEL,-m,--model", flags->model,
                 std::string(kModelHelp) + ": whether and how fast it can run here");
  app.add_option("--ctx", flags->context, "Tokens of context (default: the model's, at most 4096)")
      ->check(CLI::Range(2, 1 << 26));
  add_threads(app, flags->threads);
  app.add_flag("--no-measure", flags->no_measure, "Do not measure bandwidth and peak");
  app.add_option("--json", flags->json, "Write all of it to this file; -: standard output");
  const FlagGroup group(app, "Drafters, whose memory is counted, too");
  add_drafter_flags(app, flags->drafters);
  return [flags, &app] { return run(*flags, app); };
}

}  // namespace aerie
