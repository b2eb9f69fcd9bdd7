#include "tools/measure/bench_serve.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "format/json.h"
#include "measure/load/serve_report.h"
#include "report/text_file.h"
#include "tools/options.h"
#include "tools/report_file.h"

namespace aerie {
namespace {

struct Flags {
  measure::ServeOptions options;
  std::string endpoint = "chat", extra_body, api_key_file, json, html;
  std::vector<std::string> compare, methods;
  std::vector<int> depths = {3, 5, 7};
  bool sweep = false;
  CLI::Option* rounds = nullptr;
};

// "off,ngram@5"; what holds settings of its own ("ngram:a=1,b=2") stands alone.
std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    if (list.find(':') != std::string::npos) {
      names.push_back(list);
      continue;
    }
    for (size_t from = 0; from <= list.size();) {
      const size_t to = std::min(list.find(',', from), list.size());
      names.push_back(list.substr(from, to - from));
      from = to + 1;
    }
  }
  return names;
}

Status choose_settings(Flags& flags) {
  measure::ServeOptions& o = flags.options;
  if (flags.sweep) {
    std::vector<std::string> methods = split(flags.methods);
    if (methods.empty()) {
      AERIE_ASSIGN_OR_RETURN(methods, measure::offered_methods(o.target));
    }
    AERIE_ASSIGN_OR_RETURN(o.settings, measure::sweep_settings(methods, flags.depths));
    o.sweep = true;
  } else if (!flags.compare.empty()) {
    o.settings.clear();
    for (const std::string& name : split(flags.compare)) {
      AERIE_ASSIGN_OR_RETURN(measure::ServeSetting setting, measure::parse_serve_setting(name));
      o.settings.push_back(std::move(setting));
    }
    if (flags.rounds->count() == 0) o.rounds = 5;
  }
  return {};
}

Status finish(Flags& flags) {
  measure::ServeTarget& target = flags.options.target;
  while (target.url.ends_with('/')) target.url.pop_back();
  target.chat = flags.endpoint == "chat";
  target.cancel = &interrupted;
  if (!flags.api_key_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(target.api_key, read_key_file(flags.api_key_file, "--api-key-file"));
  }
  if (!flags.extra_body.empty()) {
    auto extra = parse_json(flags.extra_body, "--extra-body");
    if (!extra.ok()) return invalid_argument(extra.status().message());
    target.extra = std::move(*extra);
  }
  flags.options.note = [](const std::string& text) { print_message("{}\n", text); };
  return choose_settings(flags);
}

Status run(Flags& flags) {
  AERIE_RETURN_IF_ERROR(finish(flags));
  AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
  AERIE_ASSIGN_OR_RETURN(ReportFile html, ReportFile::open(flags.html, "--html"));
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_serve(flags.options));
  json.print_beside(to_text(report));
  AERIE_RETURN_IF_ERROR(json.write(to_json(report)));
  AERIE_RETURN_IF_ERROR(html.write(to_html(report)));
  if (!report.interrupted) return {};
  return {StatusCode::kCancelled, "interrupted; the figures are those of the requests until then"};
}

void add_load_flags(CLI::App& app, measure::ServeOptions& o) {
  add_list(app, "--concurrency", o.concurrency, "Requests at a time at most: 1,4,16");
  add_shown(app, "--rate", o.rate,
            "Requests in a second, arriving as a Poisson process; inf: at once, as many as "
            "--concurrency allows");
  add_shown(app, "--num-prompts", o.num_prompts,
            "Requests of a run, the prompts over again if they are fewer; 0: each once");
  add_shown(app, "--limit", o.selection.limit, "Only the first so many prompts of a file; 0: all");
  add_shown(app, "--sample", o.selection.sample, "Of those so many of each task, evenly spread");
}

void add_request_flags(CLI::App& app, Flags& flags) {
  measure::ServeTarget& t = flags.options.target;
  add_shown(app, "--endpoint", flags.endpoint, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}));
  app.add_option("--model", t.model, "The model's name there (default: the server's first)");
  add_shown(app, "--max-tokens", t.max_tokens, "Tokens of a reply at most");
  add_shown(app, "--temperature", t.temperature);
  add_shown(app, "--seed", t.seed, "Of random choices; prompts add their number");
  app.add_flag("--ignore-eos", t.ignore_eos, "Go on to --max-tokens, where the server can");
  app.add_option("--extra-body", flags.extra_body, "A JSON object with more keys for each request");
  CLI::Option* key = app.add_option("--api-key", t.api_key, "The server's API key");
  app.add_option("--api-key-file", flags.api_key_file, "A file that holds it")->excludes(key);
  add_shown(app, "--timeout", t.timeout, "Seconds to wait for a reply")
      ->check(CLI::Range(0.001, 86400.0));
}

}  // namespace

std::function<Status()> add_bench_serve(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  measure::ServeOptions& o = flags->options;
  app.add_option("--url", o.target.url, "The server, such as http://127.0.0.1:8000/v1")->required();
  app.add_option("--dataset", o.datasets,
                 "Files of prompts, JSON lines with 'turns', 'prompt', 'question', 'text' or "
                 "'messages'; or "
                 "ORG/REPO of a dataset on the hub")
      ->required();
  add_load_flags(app, o);
  add_request_flags(app, *flags);
  CLI::Option* compare =
      app.add_option("--compare", flags->compare,
                     "Speculation settings to take in turn and compare with the first: off, auto, "
                     "a method of the server, METHOD@DEPTH")
          ->allow_extra_args(false);
  CLI::Option* sweep =
      app.add_flag("--sweep", flags->sweep, "Every method at every depth against plain decoding")
          ->excludes(compare);
  app.add_option("--methods", flags->methods, "With it: methods (default: those of the server)")
      ->allow_extra_args(false)
      ->needs(sweep);
  add_list(app, "--depths", flags->depths, "With it: the most tokens of a draft in depth")
      ->needs(sweep);
  flags->rounds = app.add_option("--rounds", o.rounds,
                                 "Rounds of all settings (default: 5 with --compare, else 1)");
  app.add_option("--json", flags->json, "Write the figures to this file; -: standard output");
  app.add_option("--html", flags->html, "Write a page with plots to this file");
  return [flags] { return run(*flags); };
}

}  // namespace aerie
