#include "tools/measure/audit_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
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
  std::string speculate = "none", isa = "recorded", send = "ids", api_key_file, json;
  int limit = 0;
};

void show_progress(int done, int of) {
  print_message("record {} of {}\n", done, of);
}

Expected<measure::AuditReport> run_locally(Flags& flags,
                                           const std::vector<measure::AuditRecord>& records) {
  AERIE_ASSIGN_OR_RETURN(flags.local.speculation,
                         in_context(parse_speculative_spec(flags.speculate), "--speculate"));
  if (flags.isa != "recorded") {
    AERIE_ASSIGN_OR_RETURN(flags.local.isa, parse_isa(flags.isa));
  }
  flags.local.progress = show_progress;
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
  flags.server.progress = show_progress;
  flags.server.cancel = &interrupted;
  return measure::audit_server(flags.server, records);
}

Expected<int> run(Flags& flags) {
  if (flags.local.model.empty() == flags.server.url.empty()) {
    return invalid_argument("give -m MODEL to replay here, or --url URL to ask a server");
  }
  AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
  AERIE_ASSIGN_OR_RETURN(const auto records, measure::read_records(flags.files, flags.limit));
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const measure::AuditReport report, flags.server.url.empty()
                                                                ? run_locally(flags, records)
                                                                : run_server(flags, records));
  print_output(to_text(report));
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
  add("--threads", o.threads, "Threads (default: the cores this process may use)")
      ->check(CLI::Range(1, 1024));
  add("--isa", flags.isa, "recorded (or the best there is), " + isa_choices())
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
  app.add_option("RECORDS", flags->files, "Files that `aerie run --record` wrote")->required();
  add_shown(app, "--limit", flags->limit, "Only the first so many records of a file; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--json", flags->json, "Write the outcome of every record to this file");
  CLI::Option* url = app.add_option("--url", flags->server.url,
                                    "Ask this server, such as http://127.0.0.1:8000/v1")
                         ->group("A server");
  add_local_flags(app, *flags, url);
  add_server_flags(app, *flags, url);
  return [flags] { return run(*flags); };
}

}  // namespace aerie
