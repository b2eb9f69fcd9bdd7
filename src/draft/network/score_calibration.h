// From what a draft model promises to what comes true.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace aerie {

// Corrects estimates of "this child is right if its parent is" by how often estimates of about the
// same size have held so far in this sequence. Without any experience it believes them.
class ScoreCalibration {
 public:
  // In (0, 1]. Estimates of one size class keep their order.
  double estimate(double promised) const {
    const Class& c = classes_[class_of(promised)];
    return std::clamp(promised * (c.held + kBelief) / (c.promised + kBelief), 1e-6, 1.0);
  }
  void judge(double promised, bool held) {
    Class& c = classes_[class_of(promised)];
    c.promised += promised;
    c.held += held ? 1.0 : 0.0;
  }

 private:
  static constexpr double kBelief = 3.0;  // nodes that held as promised, taken to have been there
  static constexpr std::array kBounds = {0.01, 0.03, 0.08, 0.2, 0.4, 0.6, 0.8, 0.95};
  struct Class {
    double promised = 0.0, held = 0.0;
  };
  static size_t class_of(double promised) {
    return static_cast<size_t>(std::upper_bound(kBounds.begin(), kBounds.end(), promised) -
                               kBounds.begin());
  }

  std::array<Class, kBounds.size() + 1> classes_;
};

}  // namespace aerie
