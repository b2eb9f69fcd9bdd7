// What somebody may have meant by a word that is none of those there are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// Letters to insert, delete, replace or swap with their neighbour to make `b` of `a`.
int edit_distance(std::string_view a, std::string_view b);

// The nearest of `choices`, the first among equals; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& choices);

// " (did you mean CHOICE?)", or empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& choices);

}  // namespace aerie
