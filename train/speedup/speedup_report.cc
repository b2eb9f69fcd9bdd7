#include "train/speedup/speedup_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "measure/spec/spec_report.h"
#include "train/run/shell_text.h"
#include "train/speedup/speedup_state.h"

namespace aerie::train {

double tokens_per_second(const SpeedupFacts& facts) {
  return static_cast<double>(facts.training.rows) /
         std::max(facts.data_seconds + facts.training.seconds, 1e-9);
}

const ProfileChoice& best_choice(const Profile& profile) {
  const auto best = std::ranges::find_if(profile.choices, [](const ProfileChoice& choice) {
    return choice.batch == 1 && choice.temperature == 0.0;
  });
  assert(best != profile.choices.end());
  return *best;
}

std::string speedup_table(const measure::SpecReport& report) {
  std::string text = fmt::format(
      "Held-out prompts: {}, replies of at most {} tokens, methods in turns.\n"
      "temperature  tokens/s  times plain  tokens/round  accepted by position\n",
      report.prompts, report.max_tokens);
  for (const measure::MethodFigures& method : report.methods) {
    const measure::Figures& all = method.all;
    text += fmt::format("{:>11g} {:>9.1f} {:>12.2f} {:>13.2f}  {:.2f}\n{:>13}{}\n",
                        method.temperature, all.tokens_per_second, all.speedup.value,
                        all.mean_accepted_length, fmt::join(all.per_position_acceptance, " "), "",
                        method.method == "none" ? "plain decoding" : method.method);
  }
  text.pop_back();
  return text;
}

std::vector<std::string> speedup_commands(const SpeedupFacts& facts, const ProfileChoice& best) {
  const std::string run = fmt::format("aerie run -m {}{} -p 'Hello'", shell_word(facts.model),
                                      facts.chat_template ? "" : " --raw");
  const auto with = [&](const std::string& speculate) {
    return fmt::format("{} --speculate {} --profile {}", run, shell_word(speculate),
                       shell_word(facts.profile));
  };
  std::vector<std::string> commands = {best.speculate == "none" ? run : with(best.speculate)};
  // It looks after itself on other texts and at other loads, where the best may be another.
  if (best.speculate != facts.with_head) commands.push_back(with(facts.with_head));
  return commands;
}

std::string speedup_verdict(const SpeedupFacts& facts, const measure::TuneReport& report) {
  const ProfileChoice& best = best_choice(report.profile);
  std::string text;
  if (best.speculate == "none") {
    text = fmt::format(
        "Plain decoding is best for this model on this machine, as measured: {}.\n"
        "More data and training may change that: a larger --budget, in another folder.\n"
        "To decode plainly, and to speculate with the head even so:",
        best.why);
  } else {
    const bool head = best.speculate.find(facts.head) != std::string::npos;
    text =
        fmt::format("Fastest: {}, {:.2f} times plain decoding ({}).{}\nTo use it:", best.speculate,
                    best.speedup, best.why, head ? "" : "\nThat does without the trained head.");
  }
  for (const std::string& command : speedup_commands(facts, best)) text += "\n  " + command;
  return text;
}

std::string speedup_json(const SpeedupFacts& facts, const measure::TuneReport& report) {
  const ProfileChoice& best = best_choice(report.profile);
  measure::Json json = {
      {"model", facts.model},
      {"method", facts.method},
      {"head", facts.head},
      {"profile", facts.profile},
      {"measured_before", json_of(facts.speeds, "_tokens_per_second")},
      {"data",
       {{"samples", facts.samples},
        {"tokens", facts.tokens},
        {"generated", facts.generated},
        {"seconds", facts.data_seconds}}},
      {"training",
       {{"steps", facts.training.step},
        {"tokens", facts.training.rows},
        {"seconds", facts.training.seconds},
        {"best_step", facts.training.best_step},
        {"tokens_per_second_with_data", tokens_per_second(facts)}}},
      {"best", {{"speculate", best.speculate}, {"speedup", best.speedup}, {"why", best.why}}},
      {"commands", speedup_commands(facts, best)}};
  json["evaluation"] = measure::json_of(report.spec);
  return json.dump(2) + "\n";
}

}  // namespace aerie::train
