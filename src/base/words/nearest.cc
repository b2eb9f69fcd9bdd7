#include "base/words/nearest.h"

#include <algorithm>

namespace aerie {

int edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table of distances between beginnings: two before, one before, this.
  std::vector<int> older(b.size() + 1), before(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    older.swap(before);
    before.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, before[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], older[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& choices) {
  // Words of strangers may be long, and the table is as large as both together.
  constexpr size_t kLongest = 80;
  if (word.size() > kLongest) return "";
  int best = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  std::string found;
  for (const std::string& choice : choices) {
    const int distance = edit_distance(word, choice);
    if (distance >= best) continue;
    best = distance;
    found = choice;
  }
  return found;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& choices) {
  const std::string choice = nearest(word, choices);
  return choice.empty() ? "" : " (did you mean " + choice + "?)";
}

}  // namespace aerie
