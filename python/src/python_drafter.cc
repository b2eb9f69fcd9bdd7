#include "python_drafter.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

namespace aerie::python {

namespace nb = nanobind;

namespace {

using Node = std::tuple<int32_t, int32_t, float>;  // token, parent, probability

// "ValueError: what it says", in one line.
Status status_of(const nb::python_error& error) {
  std::string message = nb::cast<std::string>(error.type().attr("__name__"));
  message.append(": ").append(nb::str(error.value()).c_str());
  for (char& one : message) {
    if (one == '\n') one = ' ';
  }
  return {StatusCode::kInternal, std::move(message)};
}

// Calls into Python and makes a status of what goes wrong. Requires the GIL.
template <typename Call>
Status guarded(const Call& call) {
  try {
    call();
    return {};
  } catch (nb::python_error& error) {
    return status_of(error);
  } catch (const std::exception& error) {
    return {StatusCode::kInternal, error.what()};
  }
}

nb::list list_of(std::span<const int32_t> tokens) {
  nb::list list;
  for (const int32_t token : tokens) list.append(token);
  return list;
}

}  // namespace

PythonDrafter::~PythonDrafter() {
  const nb::gil_scoped_acquire gil;
  adapter_.reset();
}

nb::list PythonDrafter::new_tokens(uint64_t sequence, std::span<const int32_t> tokens) {
  size_t& known = known_[sequence];
  nb::list list = list_of(tokens.subspan(known));
  known = tokens.size();
  return list;
}

Status PythonDrafter::open(uint64_t sequence, std::span<const int32_t> tokens) {
  const nb::gil_scoped_acquire gil;
  return guarded([&] {
    known_[sequence] = 0;
    adapter_.attr("open")(sequence, new_tokens(sequence, tokens));
  });
}

void PythonDrafter::close(uint64_t sequence) {
  const nb::gil_scoped_acquire gil;
  known_.erase(sequence);
  // The sequence is over; the adapter has logged what went wrong.
  static_cast<void>(guarded([&] { adapter_.attr("close")(sequence); }));
}

Status PythonDrafter::propose(std::span<DraftQuery> queries) {
  const nb::gil_scoped_acquire gil;
  return guarded([&] {
    nb::list asked;
    for (const DraftQuery& query : queries) {
      asked.append(nb::make_tuple(query.sequence, new_tokens(query.sequence, query.tokens),
                                  query.max_nodes));
    }
    const nb::object answer = adapter_.attr("propose")(asked);
    const auto drafts = nb::cast<std::vector<std::vector<Node>>>(answer);
    for (size_t i = 0; i < std::min(drafts.size(), queries.size()); ++i) {
      for (const auto& [token, parent, probability] : drafts[i]) {
        queries[i].draft.push_back({token, parent, probability});
      }
    }
  });
}

Status PythonDrafter::observe(std::span<const DraftOutcome> outcomes) {
  const nb::gil_scoped_acquire gil;
  return guarded([&] {
    nb::list told;
    for (const DraftOutcome& outcome : outcomes) {
      told.append(nb::make_tuple(outcome.sequence, new_tokens(outcome.sequence, outcome.tokens),
                                 list_of(outcome.accepted), outcome.drafted));
    }
    adapter_.attr("observe")(told);
  });
}

}  // namespace aerie::python
