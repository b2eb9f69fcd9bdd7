#include "tools/measure/audit_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "engine/placement/device_choice.h"
#include "measure/audit/audit_server.h"
#include "report/text_file.h"
#include "tools/flags.h"
#include "tools/options.h"
#include "tools/report_file.h"

namespace aerie {
namespace {

using State = measure::AuditOutcome::State;

struct Flags {
  std::vector<std::string> files;
  measure::AuditOptions local;
  measure::ServerAuditOptions server;
  std::string speculate = "none", isa = "recorded", device = "recorded", send = "ids", api_key_file,
              json;
  std::string since;
  measure::RecordChoice choice;
};

// Seconds of "90m", "24h", "7d".
Expected<int64_t> parse_span(const std::string& text) {
  constexpr int64_t kMost = int64_t{100} * 366 * 86400;
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, count);
  const std::string_view unit(result.ptr, static_cast<size_t>(end - result.ptr));
  const int64_t seconds = unit == "s"   ? 1
                          : unit == "m" ? 60
                          : unit == "h" ? 3600
                          : unit == "d" ? 86400
                                        : 0;
  if (result.ec != std::errc() || count < 1 || seconds == 0 || count > kMost / seconds) {
    return invalid_argument("--since {}: give a time such as 24h or 7d: a number and s, m, h or d",
                            text);
  }
  return count * seconds;
}

Expected<measure::AuditReport> run_locally(Flags& flags,
                                           const std::vector<measure::AuditRecord>& records) {
  AERIE_ASSIGN_OR_RETURN(flags.local.speculation,
                         in_context(parse_speculative_spec(flags.speculate), "--speculate"));
  if (flags.isa != "recorded") {
    AERIE_ASSIGN_OR_RETURN(flags.local.isa, parse_isa(flags.isa));
  }
  if (flags.device != "recorded") {
    AERIE_ASSIGN_OR_RETURN(flags.local.device, in_context(parse_device(flags.device), "--device"));
  }
  flags.local.cancel = &interrupted;
  return measure::audit_locally(flags.local, records);
}

Expected<measure::AuditReport> run_server(Flags& flags,
                                          const std::vector<measure::AuditRecord>& records) {
  if (!flags.api_key_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(flags.server.api_key,
                           read_key_file(flags.api_key_file, "--api-key-file"));
  }
  flags.server.send_text = flags.send == "text";
  flags.server.cancel = &interrupted;
  return measure::audit_server(flags.server, records);
}

Expected<std::vector<measure::AuditRecord>> records_of(Flags& flags) {
  if (!flags.since.empty()) {
    AERIE_ASSIGN_OR_RETURN(const int64_t span, parse_span(flags.since));
    flags.choice.since = std::max<int64_t>(1, std::time(nullptr) - span);
  }
  flags.choice.seed = std::random_device()();
  AERIE_ASSIGN_OR_RETURN(measure::ChosenRecords chosen,
                         measure::read_records(flags.files, flags.choice));
  for (const std::string& where : chosen.unfinished) {
    print_message("{}: left out: whoever wrote the line could not finish it\n", where);
  }
  if (!chosen.records.empty()) return std::move(chosen.records);
  print_output(summary_line(measure::AuditReport()));
  if (!flags.since.empty()) {
    return invalid_argument("there are no records of the last {}", flags.since);
  }
  return invalid_argument(
      "there are no records: make some with `aerie run --record FILE` or `aerie serve --record "
      "DIR`");
}

Expected<int> run(Flags& flags) {
  if (flags.local.model.empty() == flags.server.url.empty()) {
    return invalid_argument("give -m MODEL to replay here, or --url URL to ask a server");
  }
  AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
  AERIE_ASSIGN_OR_RETURN(const std::vector<measure::AuditRecord> records, records_of(flags));
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const measure::AuditReport report, flags.server.url.empty()
                                                                ? run_locally(flags, records)
                                                                : run_server(flags, records));
  json.print_beside(to_text(report));
  AERIE_RETURN_IF_ERROR(json.write(to_json(report)));
  if (report.count(State::kDiverged) > 0 || report.count(State::kFailed) > 0) return 1;
  if (report.interrupted) return 130;
  if (report.all_equal()) return 0;
  return invalid_argument(
      "nothing could be compared: every record was skipped, see the reasons above");
}

void add_local_flags(CLI::App& app, Flags& flags, CLI::Option* url) {
  measure::AuditOptions& o = flags.local;
  const FlagGroup group(app, "Here");
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)->excludes(url);
  };
  add("-m,--model", o.model, kModelHelp);
  add("--speculate", flags.speculate, "Replay with a drafter, as `aerie run` has it")
      ->capture_default_str();
  add("--threads", o.threads, kThreadsHelp)->check(CLI::Range(1, 1024));
  add("--isa", flags.isa, "recorded (or the best there is), " + isa_choices())
      ->capture_default_str();
  add("--device", flags.device,
      "recorded (of GPUs the first, or the processor), cpu, cuda, cuda:N or emulated")
      ->capture_default_str();
  add("--ctx", o.context, "Tokens of context (default: as recorded)")
      ->check(CLI::Range(2, 1 << 26));
  add("--weight-cache", o.weight_cache,
      "A folder to keep packed weights in, for a quicker start the next time");
  app.add_flag("--other-models", o.other_models, "Replay the records of other models, too")
      ->excludes(url);
}

void add_server_flags(CLI::App& app, Flags& flags, CLI::Option* url) {
  const FlagGroup group(app, "A server");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->needs(url);
  };
  add("--server-model", flags.server.model, "The model's name there (default: none is sent)");
  add("--api-key-file", flags.api_key_file, "A file that holds the API key");
  add("--send", flags.send, "What the prompt is sent as: ids or text")
      ->check(CLI::IsMember({"ids", "text"}))
      ->capture_default_str();
  add("--timeout", flags.server.timeout, "Seconds to wait for a reply")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
}

}  // namespace

std::function<Expected<int>()> add_audit_flags(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("RECORDS", flags->files,
                 "Files that `aerie run --record` wrote, folders of `aerie serve --record`")
      ->required();
  app.add_option("--since", flags->since,
                 "Only replies that ended within this time, such as 24h or 7d");
  add_shown(app, "--limit", flags->choice.limit, "Only the first so many records of a file; 0: all")
      ->check(CLI::NonNegativeNumber);
  add_shown(app, "--sample", flags->choice.sample,
            "Only so many of all records, drawn at random; 0: all")
      ->check(CLI::NonNegativeNumber);
  add_quiet(app);
  app.add_option("--json", flags->json, "Write the outcome of every record to this file");
  CLI::Option* url = app.add_option("--url", flags->server.url,
                                    "Ask this server, such as http://127.0.0.1:8000/v1")
                         ->group("A server");
  add_local_flags(app, *flags, url);
  add_server_flags(app, *flags, url);
  return [flags] { return run(*flags); };
}

}  // namespace aerie
