// Arithmetic that the native bodies share: an exponential, the scale of a weight, one step of Adam, and denormal numbers.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

// e^x for |x| <= 87: a power of two, and a polynomial for the rest. The vector library's version looks at every register for
// numbers beyond that, which no caller here has.
inline float exponential(float x) {
  const float n = std::nearbyint(x * 1.44269504f), f = std::fma(n, -0.693147181f, x);
  const float p = 1.0f + f * (1.0f + f * (0.5f + f * (0.16666667f + f * (0.041666667f + f * (0.0083333333f + f * 0.0013888889f)))));
  const int32_t bits = (int32_t(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

// Numbers below 1.2e-38 count as zero while this lives. The second moments of weights that no data reach come down to them,
// and a processor takes a hundred times as long for each: an epoch of MNIST was 1.7 times slower for it.
struct FlushDenormals {
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#endif
};

// std = log(1 + e^rho) and its slope 1 / (1 + e^-rho), without a branch around a function call: such a loop is not vectorised.
// log(1 + e) = 2 artanh(t) with t = e / (2 + e) <= 1/3: a series that keeps all digits where 1 + e has lost those of e.
// Below -80 both are those of -80, as in the plain step: float holds that std and its inverse.
struct Scale { float std, slope; };
inline Scale scale_of(float rho) {
  rho = std::fmax(rho, -80.0f);
  const float e = exponential(-std::fmin(std::fabs(rho), 87.0f)), both = 1.0f / ((1.0f + e) * (2.0f + e));
  const float inverse = both * (2.0f + e), t = e * both * (1.0f + e), t2 = t * t;
  const float series = 1.0f + t2 * (0.33333333f + t2 * (0.2f + t2 * (0.14285714f + t2 * (0.11111111f + t2 * 0.090909091f))));
  return {(rho > 0.0f ? rho : 0.0f) + 2.0f * t * series, rho > 0.0f ? inverse : e * inverse};
}

struct Adam {  // `rate` is divided by Adam's first correction, `inverse2` is one over the second
  float rate, beta1, beta2, epsilon, inverse2, decay;
  inline void operator()(float& value, float& m, float& v, float g) const {
    m = beta1 * m + (1.0f - beta1) * g;
    v = beta2 * v + (1.0f - beta2) * g * g;
    // The compiler takes the root by an estimate of its reciprocal, which is infinite for numbers below 1.2e-38.
    value = value * decay - rate * m / (std::sqrt(std::fmax(v * inverse2, 1.2e-38f)) + epsilon);
  }
};

}  // namespace
