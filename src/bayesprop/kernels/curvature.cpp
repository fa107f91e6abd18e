// The step of inference/variational/ivon.py in one pass over the columns; kernels/curvature.py says what it computes.

#include <cmath>
#include <cstdint>

extern "C" {

// out = mean + noise / sqrt(precision)
void bayesprop_spread(float* out, const float* mean, const float* precision, const float* noise, int64_t count, int64_t threads) {
#pragma omp parallel for simd num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < count; ++i) out[i] = mean[i] + noise[i] / std::sqrt(precision[i]);
}

// a: rate, share, heat, 1 - beta1, 1 / (correction * heat), radius (3e38 for none), loc and precision of the prior.
void bayesprop_curvature(float* mean, float* precision, float* momentum, const float* gradient, const float* noise, int64_t count,
                         int64_t threads, const float* a) {
  const float rate = a[0], share = a[1] / a[2], heat = a[2], fresh = a[3], scale = a[4], radius = a[5], loc = a[6], prior = a[7];
#pragma omp parallel for simd num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < count; ++i) {
    const float t = precision[i], m = mean[i], g = gradient[i];
    const float slope = heat * prior * (m - loc) - g;
    const float change = share * (heat * (prior - t) - g * noise[i] * std::sqrt(t));
    const float moved = momentum[i] + fresh * (slope - momentum[i]);
    const float step = scale * moved / t;
    momentum[i] = moved;
    mean[i] = m - rate * std::fmin(std::fmax(step, -radius), radius);
    precision[i] = t + change + 0.5f * change * change / t;
  }
}

}
