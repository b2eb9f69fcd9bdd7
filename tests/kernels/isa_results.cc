#include "tests/kernels/isa_results.h"

#include <cmath>

#include "tests/kernels/attention/attention_testing.h"
#include "tests/kernels/linear/linear_testing.h"
#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels {
namespace {

// Sums of codes are far below 2^24, so that a float holds them.
std::vector<float> contents(const Activations& x) {
  std::vector<float> all;
  const auto append = [&all](const auto& values) {
    for (const auto value : values) all.push_back(static_cast<float>(value));
  };
  append(x.floats.as<float>());
  const RowCodes rows = read_codes(x);
  append(rows.codes);
  append(rows.scales);
  append(rows.sums);
  append(rows.scaled_sums);
  return all;
}

constexpr int64_t kLength = 320, kRows = 5;

// Row operations on values of 2^exponent.
void visit_rows_of(int exponent, Random& random, const Backend& on, const ResultVisitor& visit) {
  std::vector<float> values = uniform_floats(random, kRows * kLength, -1.0f, 1.0f);
  for (float& x : values) x = std::ldexp(x, exponent);
  const std::vector<float> weight = uniform_floats(random, kLength, -1.0f, 1.0f);
  const std::vector<float> up = uniform_floats(random, kRows * kLength, -1.0f, 1.0f);
  const auto run = [&](const std::string& name, const auto& operation) {
    Activations x = activations_of(on, values, kLength, true);
    operation(x);
    visit(name + " of 2^" + std::to_string(exponent), contents(x));
  };
  run("quantize", [](Activations&) {});
  run("rms_norm", [&](Activations& x) {
    on.rms_norm(pool_of(1), values.data(), kLength, weight.data(), 1e-5, x);
  });
  run("layer_norm", [&](Activations& x) {
    on.layer_norm(pool_of(1), values.data(), kLength, weight.data(), up.data(), 1e-5, x);
  });
  run("rms_norm_heads", [&](Activations& x) {
    on.rms_norm_heads(pool_of(1), x.row(0), kRows, 5, 64, weight.data(), 1e-5);
  });
  run("add_rms_norm", [&](Activations& x) {
    on.add_rms_norm(pool_of(1), up.data(), kRows, kLength, weight.data(), 1e-5, x.row(0));
  });
  for (const auto& [activation, name] : {std::pair{Activation::kSilu, "silu"},
                                         {Activation::kGeluTanh, "gelu_tanh"},
                                         {Activation::kGelu, "gelu"},
                                         {Activation::kClampedSilu, "clamped_silu"}}) {
    const Activation kind = activation;
    run(std::string("gated ") + name,
        [&](Activations& x) { on.gated(pool_of(1), kind, values.data(), up.data(), x); });
    run(name, [&](Activations& x) { on.activate(pool_of(1), kind, values.data(), x); });
  }
  run("soft_cap",
      [&](Activations& x) { on.soft_cap(pool_of(1), x.row(0), kRows * kLength, 30.0f); });
  for (const auto& [style, name] :
       {std::pair{RopeStyle::kPairs, "rope pairs"}, {RopeStyle::kHalves, "rope halves"}}) {
    const RopeStyle turn = style;
    run(name, [&](Activations& x) {
      on.rope(pool_of(1), x.row(0), kRows, 5, 64, 64, turn, up.data(), values.data());
    });
  }
}

}  // namespace

void visit_products(const Backend& backend, DType dtype, std::span<const int64_t> row_counts,
                    const ResultVisitor& visit) {
  Random random(15);
  for (const int64_t k : lengths_for(dtype)) {
    const std::string name = std::string(dtype_info(dtype).name) + " k " + std::to_string(k);
    const PackedMatrix packed = pack(backend, random_weights(dtype, 41, k, random));
    const std::span<const uint8_t> panels = packed.data.as<uint8_t>();
    visit(name + " panels", std::vector<float>(panels.begin(), panels.end()));
    const Activations all = random_activations(backend, 64, k, backend.wants_int8(dtype), random);
    for (const int64_t rows : row_counts) {
      visit(name + " rows " + std::to_string(rows),
            product(backend, 1, packed, first_rows(all, rows)));
    }
  }
}

void visit_row_operations(const Backend& backend, const ResultVisitor& visit) {
  Random random(16);
  for (const int exponent : {-130, -20, -12, 0, 3, 20, 120}) {
    visit_rows_of(exponent, random, backend, visit);
  }
}

void visit_attention(const Backend& backend, const ResultVisitor& visit) {
  Random random(17);
  for (const AttentionShape& shape : {AttentionShape{6, 2, 64},
                                      {32, 1, 80},
                                      {3, 3, 128},
                                      {4, 2, 96, 90},
                                      {9, 3, 64, 128, 0.0f, KvType::kF16, true},
                                      {4, 1, 256, 300, 50.0f}}) {
    for (const int length : {1, 40, 257, 600}) {
      const std::vector<Token> chain = random_tokens(random, length);
      for (const KvType type : kAllKvTypes) {
        const AttentionShape typed = shape.with(type);
        visit("attention " + typed.name() + " of " + std::to_string(length),
              attend_alone(backend, typed, chain));
      }
    }
  }
}

void visit_long_keys(const Backend& backend, const ResultVisitor& visit) {
  Random random(19);
  for (const AttentionShape& shape : kLongKeys) {
    for (const int length : {1, 40, 300}) {
      const std::vector<Token> chain = random_tokens(random, length);
      for (const KvType type : kAllKvTypes) {
        const AttentionShape typed = shape.with(type);
        visit("attention " + typed.name() + " of " + std::to_string(length),
              attend_alone(backend, typed, chain));
      }
    }
  }
}

void visit_linear_attention(const Backend& backend, const ResultVisitor& visit) {
  Random random(18);
  for (const StateLayout& layout : kStateLayouts) {
    const std::string name = layout_name(layout);
    std::vector<LinearRow> rows;
    for (int i = 0; i < 12; ++i) rows.push_back(random_linear_row(layout, random));
    std::vector<LinearLayer::Row> pass;
    for (size_t i = 0; i < rows.size(); ++i) {
      pass.push_back({&rows[i], static_cast<int32_t>(i) - 1, {}, static_cast<int32_t>(i)});
    }
    pass.back().into = 1;
    LinearLayer layer(backend, layout);
    visit("delta rule, " + name, layer.run(pass));
    visit("states, " + name, {layer.state(1), static_cast<size_t>(layout.inputs())});

    const int64_t channels = layout.channels();
    const std::vector<float> weights = uniform_floats(random, layout.taps * channels, -1.0f, 1.0f);
    const std::vector<float> inputs = uniform_floats(random, layout.taps * channels, -2.0f, 2.0f);
    std::vector<const float*> taps;
    for (int t = 0; t < layout.taps; ++t) taps.push_back(inputs.data() + t * channels);
    std::vector<float> out(static_cast<size_t>(channels));
    const ShortConvArgs::Part parts[] = {{out.data(), channels}};
    backend.short_conv(pool_of(1), {layout.taps, weights.data(), taps, parts, {}});
    visit("short convolution, " + name, out);
    ShortConvArgs plain = {layout.taps, weights.data(), taps, parts, {}};
    plain.bias = inputs.data();
    plain.silu = false;
    backend.short_conv(pool_of(1), plain);
    visit("short convolution with a bias and no SiLU, " + name, out);
    LinearLayer space(backend, layout, 1, false);
    visit("state space, " + name, space.run(pass));
    visit("its states, " + name, {space.state(1), static_cast<size_t>(layout.inputs())});
  }
}

}  // namespace aerie::kernels
