// CPU bodies of the fused operations. Their definitions, in plain torch, stand in the Python file of the same operation.
//
// Compiled on first use by kernels/native.py.
#include "noise.hpp"

namespace {

// Calls visit(low, high, noise) for runs of at most 4 * CHUNK columns that cover [0, columns); `noise` is room for as many
// numbers. The same thread gets the same columns every time, so that they stay in its cache. The threads are those of torch's own
// OpenMP runtime.
template <class Visit> void over_chunks(int64_t columns, int64_t threads, const Visit& visit) {
  const int64_t length = 4 * CHUNK, last = (columns + length - 1) / length;
#pragma omp parallel num_threads(int(threads)) if (threads > 1)
  {
    const FlushDenormals flush;
#pragma omp for schedule(static)
    for (int64_t chunk = 0; chunk < last; ++chunk) {
      alignas(64) float noise[4 * CHUNK];
      visit(chunk * length, (chunk + 1) * length < columns ? (chunk + 1) * length : columns, noise);
    }
  }
}

// d log p / dw of the closed-form families; p[] are the family's parameters as kernels/mean_field.py orders them.
struct Normal { float loc, precision; float operator()(float w) const { return (loc - w) * precision; } };
struct Flat { float operator()(float) const { return 0.0f; } };
struct Laplace {
  float loc, rate;
  float operator()(float w) const { const float d = w - loc; return d > 0.0f ? -rate : (d < 0.0f ? rate : 0.0f); }
};
struct StudentT {
  float loc, df_plus_one, df_scale_squared;
  float operator()(float w) const { const float d = w - loc; return -df_plus_one * d / (df_scale_squared + d * d); }
};
struct ScaleMixture {
  float log_odds, half_difference, precision1, precision2;  // precision = 1 / scale^2
  float operator()(float w) const {
    // The share of component 1. Beyond +-40 it is 0 or 1 in float, and the vector exponential would take its slow path;
    // fmin and fmax, because the compiler would pull the exponential into the branches of a conditional.
    const float odds = std::fmin(std::fmax(log_odds + half_difference * w * w, -40.0f), 40.0f);
    const float against = exponential(-odds), share = 1.0f / (1.0f + against);
    // Both shares are positive: written as precision2 + share * (precision1 - precision2), a wide component would drown in
    // the rounding of the narrow one's precision, which may be ten million times its own.
    return -w * (share * precision1 + (against * share) * precision2);
  }
};

// dL/dw of all columns, as the pieces in which the network's parameters have it: piece i covers [starts[i], starts[i + 1]).
struct Pieces {
  const float* const* pointers;
  const int64_t* starts;
  int64_t count;
};

struct Columns {
  float *mean, *rho, *mean_first, *mean_second, *rho_first, *rho_second;
};

template <class Score>
void update_run(float* __restrict mean, float* __restrict rho, float* __restrict mm, float* __restrict mv, float* __restrict rm,
                float* __restrict rv, const float* __restrict gradient, const float* __restrict noise, int count,
                const Score score, const Adam adam_mean, const Adam adam_rho, const float likelihood_weight,
                const float kl_weight, const bool exact, const Normal normal) {
  if (exact) {
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      const Scale s = scale_of(rho[i]);
      const float g = gradient[i] * likelihood_weight;
      adam_rho(rho[i], rm[i], rv[i], (g * noise[i] + kl_weight * (s.std * normal.precision - 1.0f / s.std)) * s.slope);
      adam_mean(mean[i], mm[i], mv[i], g - kl_weight * normal(mean[i]));
    }
  } else {
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      const Scale s = scale_of(rho[i]);
      const float g = gradient[i] * likelihood_weight - kl_weight * score(mean[i] + s.std * noise[i]);
      adam_rho(rho[i], rm[i], rv[i], (g * noise[i] - kl_weight / s.std) * s.slope);
      adam_mean(mean[i], mm[i], mv[i], g);
    }
  }
}

// theta = mean + std * noise. One piece of code for all who sample: the same run of columns gives the same bits.
__attribute__((noinline)) void sample_run(float* __restrict out, const float* __restrict mean, const float* __restrict rho,
                                          const float* __restrict noise, int count) {
#pragma omp simd
  for (int i = 0; i < count; ++i) out[i] = mean[i] + scale_of(rho[i]).std * noise[i];
}

// With `kept`, the noise of this step stands there; that of the next one takes its place, and theta becomes its sample.
template <class Score>
void update(const Columns c, const Pieces pieces, int64_t columns, int64_t threads, const Key& key, const Score score,
            const Adam adam_mean, const Adam adam_rho, const float likelihood_weight, const float kl_weight, const bool exact,
            const Normal normal, float* kept, float* theta) {
  over_chunks(columns, threads, [=](int64_t low, int64_t high, float* noise) {
    if (!kept) draw(noise, low, high, key);
    int64_t piece = 0, at = low;
    while (pieces.starts[piece + 1] <= at) ++piece;
    for (; at < high; ++piece) {
      const int64_t stop = pieces.starts[piece + 1] < high ? pieces.starts[piece + 1] : high;
      update_run(c.mean + at, c.rho + at, c.mean_first + at, c.mean_second + at, c.rho_first + at, c.rho_second + at,
                 pieces.pointers[piece] + (at - pieces.starts[piece]), kept ? kept + at : noise + (at - low), int(stop - at),
                 score, adam_mean, adam_rho, likelihood_weight, kl_weight, exact, normal);
      at = stop;
    }
    if (!kept) return;
    Key next = key;
    ++next.step;
    draw(noise, low, high, next);
    std::memcpy(kept + low, noise, size_t(high - low) * sizeof(float));
    sample_run(theta + low, c.mean + low, c.rho + low, noise, int(high - low));
  });
}

}  // namespace

extern "C" {

void bayesprop_bits(int64_t* out, int64_t count, int64_t seed, int64_t draw, int64_t step, int64_t stream) {
  const Key key = make_key(seed, draw, step, stream);
  for (int64_t at = 0; at < count; at += 4) {
    uint32_t word[4] = {uint32_t(at / 4), key.draw, key.step, key.stream};
    philox(word[0], word[1], word[2], word[3], key.k0, key.k1);
    for (int64_t j = 0; j < 4 && at + j < count; ++j) out[at + j] = word[j];
  }
}

void bayesprop_normal(float* out, int64_t count, int64_t threads, int64_t seed, int64_t draw_number, int64_t step,
                      int64_t stream) {
  const Key key = make_key(seed, draw_number, step, stream);
  over_chunks(count, threads, [=](int64_t low, int64_t high, float* noise) {
    draw(noise, low, high, key);
    std::memcpy(out + low, noise, size_t(high - low) * sizeof(float));
  });
}

// `kept`, which may be null, takes the noise.
void bayesprop_sample(float* out, const float* mean, const float* rho, float* kept, int64_t count, int64_t threads, int64_t seed,
                      int64_t draw_number, int64_t step, int64_t stream) {
  const Key key = make_key(seed, draw_number, step, stream);
  over_chunks(count, threads, [=](int64_t low, int64_t high, float* noise) {
    draw(noise, low, high, key);
    if (kept) std::memcpy(kept + low, noise, size_t(high - low) * sizeof(float));
    sample_run(out + low, mean + low, rho + low, noise, int(high - low));
  });
}

// family: 0 normal (closed form), 1 normal (Monte Carlo), 2 laplace, 3 student_t, 4 scale_mixture, 5 flat; p: its numbers.
// a: rate of the means, rate of rho, beta1, beta2, epsilon, correction1, correction2, decay of the means.
// kept and theta: null, or what `update` says of them.
void bayesprop_adam(float* mean, float* rho, float* mean_first, float* mean_second, float* rho_first, float* rho_second,
                    float* kept, float* theta, const float* const* gradients, const int64_t* starts, int64_t pieces,
                    int64_t columns, int64_t threads, int64_t seed, int64_t draw_number, int64_t step, int64_t stream,
                    int64_t family, const float* p, const float* a, float likelihood_weight, float kl_weight) {
  const Key key = make_key(seed, draw_number, step, stream);
  const Adam am{a[0] / a[5], a[2], a[3], a[4], 1.0f / a[6], a[7]}, ar{a[1] / a[5], a[2], a[3], a[4], 1.0f / a[6], 1.0f};
  const Normal n{p[0], p[1]};
  const Columns c{mean, rho, mean_first, mean_second, rho_first, rho_second};
  const Pieces g{gradients, starts, pieces};
#define RUN(score, exact) update(c, g, columns, threads, key, score, am, ar, likelihood_weight, kl_weight, exact, n, kept, theta)
  switch (family) {
    case 0: RUN(n, true); break;
    case 1: RUN(n, false); break;
    case 2: RUN((Laplace{p[0], p[1]}), false); break;
    case 3: RUN((StudentT{p[0], p[1], p[2]}), false); break;
    case 4: RUN((ScaleMixture{p[0], p[1], p[2], p[3]}), false); break;
    default: RUN(Flat{}, false); break;
  }
#undef RUN
}
}
