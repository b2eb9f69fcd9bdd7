#include "tests/testing/device/test_device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/device/open_device.h"

namespace aerie::test {
namespace {

std::string device_name() {
  const char* name = std::getenv("AERIE_TEST_DEVICE");
  return name != nullptr ? name : "emulated";
}

}  // namespace

device::Device& device_of_tests() {
  static const std::unique_ptr<device::Device> device = [] {
    auto opened = device::open(device_name());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }();
  return *device;
}

bool is_emulated() {
  return device_name() == "emulated";
}

}  // namespace aerie::test
