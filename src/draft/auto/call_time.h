// What a drafter's calls take, by how deep they draft.
#pragma once

namespace aerie {

// A line: what comes with any call (weights that the target's pass has put out of the caches,
// committed tokens to read), and the same for each level. Fitted by least squares to calls
// that fade. Not thread-safe.
class CallTime {
 public:
  void learn(int levels, double seconds) {
    constexpr double kKeep = 1.0 - 1.0 / 30.0;
    const double level = levels;
    calls_ = kKeep * calls_ + 1.0;
    levels_ = kKeep * levels_ + level;
    squares_ = kKeep * squares_ + level * level;
    seconds_ = kKeep * seconds_ + seconds;
    products_ = kKeep * products_ + level * seconds;
    fit();
  }
  // A level's share of a usual call. 0 while nothing is known, as is what follows.
  double per_level() const { return levels_ > 0.0 ? seconds_ / levels_ : 0.0; }
  // Of one more.
  double level() const { return each_; }
  double seconds(double levels) const { return any_ + each_ * levels; }

 private:
  void fit() {
    // Where all calls were of one depth, what comes with any call is taken to cost two levels: who
    // thinks deeper drafts too dear never learns what they cost.
    constexpr double kPrior = 0.05, kLevels = 2.0;
    const double calls = calls_ + kPrior, both = levels_ - kPrior * kLevels;
    const double squares = squares_ + kPrior * kLevels * kLevels;
    const double determinant = calls * squares - both * both;
    any_ = (squares * seconds_ - both * products_) / determinant;
    each_ = (calls * products_ - both * seconds_) / determinant;
    if (any_ < 0.0) {
      any_ = 0.0;
      each_ = products_ / squares_;
    } else if (each_ < 0.0) {
      any_ = seconds_ / calls_;
      each_ = 0.0;
    }
  }

  double calls_ = 0.0, levels_ = 0.0, squares_ = 0.0, seconds_ = 0.0, products_ = 0.0;
  double any_ = 0.0, each_ = 0.0;
};

}  // namespace aerie
