// Values in the memory of the tests' device.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/testing/device/test_device.h"

namespace aerie::test {

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    data_ = static_cast<T*>(device_of_tests().allocate(count_ * sizeof(T)));
    put(values);
  }
  ~DeviceArray() { device_of_tests().release(bytes()); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  // As many as there are.
  void put(const std::vector<T>& values) {
    device_of_tests().copy_in(bytes(), static_cast<const void*>(values.data()), count_ * sizeof(T));
    EXPECT_TRUE(device_of_tests().wait()) << device_of_tests().error();
  }
  // Once all that was put on the stream is done.
  std::vector<T> values() const {
    std::vector<T> values(count_);
    device_of_tests().copy_out(static_cast<void*>(values.data()), bytes(), count_ * sizeof(T));
    EXPECT_TRUE(device_of_tests().wait()) << device_of_tests().error();
    return values;
  }

 private:
  void* bytes() const { return static_cast<void*>(data_); }

  size_t count_;
  T* data_ = nullptr;
};

}  // namespace aerie::test
