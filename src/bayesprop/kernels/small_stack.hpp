// The log joint of a small stack of dense layers, and its gradient. The definition, in plain torch, is the model's own.
//
// Rows are the lanes of vector registers: a block of BLOCK rows goes through all layers and back while it lies in the
// first-level cache. Layers are a few units wide, so that a product of matrices would have nothing to amortise.
#pragma once
#include <vector>

#include "arithmetic.hpp"

namespace {

constexpr int64_t BLOCK = 256;
constexpr int WIDTH = 16;  // floats of a vector; narrower processors take it as several
typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float)), aligned(4), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector all(float value) { return Vector{} + value; }

struct Layer { int64_t weight, bias, inputs, outputs, activation; };  // activation: 0 none, 1 relu, 2 tanh, 3 sigmoid

struct Problem {
  const Layer* layers;
  int64_t count, rows, columns, random, widest;
  const float *center, *precision, *loc;  // of each random column: its prior, and the weight is loc + s * column
  const int32_t* scale_column;            // where log s is; -1 for a weight that is the column itself
  double constant;                        // log normalisers of the prior
  const int64_t *latent_column, *latent_kind;  // kind: 0 half-normal, 1 half-Cauchy
  const double* latent_scale;
  int64_t latents, likelihood, noise_column;  // likelihood: 0 Gaussian, 1 Bernoulli, 2 Categorical
  float noise;
};

// out[o][r] = b_o + sum_i w[o][i] in[i][r], for a block of rows.
void products(const float* weight, const float* bias, const float* in, float* out, int64_t inputs, int64_t outputs) {
  for (int64_t o = 0; o < outputs; ++o) {
    const float* w = weight + o * inputs;
    const float b = bias ? bias[o] : 0.0f;
    for (int64_t r = 0; r < BLOCK; r += 4 * WIDTH) {
      Vector a0 = all(b), a1 = a0, a2 = a0, a3 = a0;
      const float* x = in + r;
      for (int64_t i = 0; i < inputs; ++i, x += BLOCK) {
        const Vector f = all(w[i]);
        a0 += f * load(x); a1 += f * load(x + WIDTH); a2 += f * load(x + 2 * WIDTH); a3 += f * load(x + 3 * WIDTH);
      }
      float* to = out + o * BLOCK + r;
      store(to, a0); store(to + WIDTH, a1); store(to + 2 * WIDTH, a2); store(to + 3 * WIDTH, a3);
    }
  }
}

// in[i][r] = sum_o w[o][i] delta[o][r].
void back(const float* weight, const float* delta, float* in, int64_t inputs, int64_t outputs) {
  for (int64_t i = 0; i < inputs; ++i) {
    for (int64_t r = 0; r < BLOCK; r += 4 * WIDTH) {
      Vector a0 = all(0.0f), a1 = a0, a2 = a0, a3 = a0;
      const float* d = delta + r;
      for (int64_t o = 0; o < outputs; ++o, d += BLOCK) {
        const Vector f = all(weight[o * inputs + i]);
        a0 += f * load(d); a1 += f * load(d + WIDTH); a2 += f * load(d + 2 * WIDTH); a3 += f * load(d + 3 * WIDTH);
      }
      float* to = in + i * BLOCK + r;
      store(to, a0); store(to + WIDTH, a1); store(to + 2 * WIDTH, a2); store(to + 3 * WIDTH, a3);
    }
  }
}

inline float dot(const float* one, const float* other) {
  Vector a0 = all(0.0f), a1 = a0;
  for (int64_t r = 0; r < BLOCK; r += 2 * WIDTH) {
    a0 += load(one + r) * load(other + r);
    a1 += load(one + r + WIDTH) * load(other + r + WIDTH);
  }
  a0 += a1;
  float total = 0.0f;
  for (int k = 0; k < WIDTH; ++k) total += a0[k];
  return total;
}

inline float sum(const float* values) {
  Vector a = all(0.0f);
  for (int64_t r = 0; r < BLOCK; r += WIDTH) a += load(values + r);
  float total = 0.0f;
  for (int k = 0; k < WIDTH; ++k) total += a[k];
  return total;
}

void activate(float* values, int64_t count, int64_t kind) {
  if (kind == 1) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) values[k] = values[k] > 0.0f ? values[k] : 0.0f;
  } else if (kind == 2) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) {
      const float x = values[k], e = exponential(-std::fmin(2.0f * std::fabs(x), 87.0f)), t = (1.0f - e) / (1.0f + e);
      // For small x the difference has lost its digits: a polynomial.
      const float x2 = x * x, small = x * (1.0f + x2 * (-0.33333333f + x2 * (0.13333333f - 0.053968254f * x2)));
      values[k] = x2 < 0.01f ? small : (x < 0.0f ? -t : t);
    }
  } else if (kind == 3) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) {
      const float x = values[k], e = exponential(-std::fmin(std::fabs(x), 87.0f)), s = 1.0f / (1.0f + e);
      values[k] = x < 0.0f ? e * s : s;
    }
  }
}

// delta times the slope, written in terms of what the activation put out.
void slope(float* delta, const float* values, int64_t count, int64_t kind) {
  if (kind == 1) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) delta[k] = values[k] > 0.0f ? delta[k] : 0.0f;
  } else if (kind == 2) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) delta[k] *= 1.0f - values[k] * values[k];
  } else if (kind == 3) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) delta[k] *= values[k] * (1.0f - values[k]);
  }
}

// The log-likelihood of the first `rows` rows of a block, and its derivative by the outputs in their place.
double likelihood(const Problem& p, float* outputs, const float* targets, int64_t width, int64_t rows, float noise,
                  double& by_log_noise) {
  double total = 0.0;
  if (p.likelihood == 0) {
    const float inverse = 1.0f / noise;
    double squares = 0.0;
    for (int64_t o = 0; o < width; ++o) {
      float* f = outputs + o * BLOCK;
      const float* y = targets + o * BLOCK;
#pragma omp simd reduction(+ : squares)
      for (int64_t r = 0; r < rows; ++r) {
        const float z = (y[r] - f[r]) * inverse;
        squares += double(z * z);
        f[r] = z * inverse;
      }
    }
    const double count = double(rows * width);
    total = -0.5 * squares - count * (std::log(double(noise)) + 0.91893853320467274);
    by_log_noise += squares - count;
  } else if (p.likelihood == 1) {
    for (int64_t o = 0; o < width; ++o) {
      float* f = outputs + o * BLOCK;
      const float* y = targets + o * BLOCK;
#pragma omp simd reduction(+ : total)
      for (int64_t r = 0; r < rows; ++r) {
        const float z = f[r], e = exponential(-std::fmin(std::fabs(z), 87.0f)), s = 1.0f / (1.0f + e);
        const float right = y[r] > 0.5f ? z : -z;  // log sigmoid(right) = min(right, 0) - log(1 + e)
        total += double(std::fmin(right, 0.0f) - std::log(1.0f + e));
        f[r] = y[r] - (z < 0.0f ? e * s : s);
      }
    }
  } else {
    alignas(64) float most[BLOCK], whole[BLOCK], own[BLOCK];
    std::memcpy(most, outputs, sizeof(most));
    for (int64_t o = 1; o < width; ++o) {
#pragma omp simd
      for (int64_t r = 0; r < BLOCK; ++r) most[r] = std::fmax(most[r], outputs[o * BLOCK + r]);
    }
    std::memset(whole, 0, sizeof(whole));
    std::memset(own, 0, sizeof(own));
    for (int64_t o = 0; o < width; ++o) {
      float* f = outputs + o * BLOCK;
      const float label = float(o);
#pragma omp simd
      for (int64_t r = 0; r < BLOCK; ++r) {
        const float z = std::fmax(f[r] - most[r], -87.0f), e = exponential(z);
        own[r] = targets[r] == label ? f[r] - most[r] : own[r];
        whole[r] += e;
        f[r] = e;
      }
    }
#pragma omp simd reduction(+ : total)
    for (int64_t r = 0; r < rows; ++r) total += double(own[r] - std::log(whole[r]));
    for (int64_t o = 0; o < width; ++o) {
      float* f = outputs + o * BLOCK;
      const float label = float(o);
#pragma omp simd
      for (int64_t r = 0; r < BLOCK; ++r) f[r] = (targets[r] == label ? 1.0f : 0.0f) - f[r] / whole[r];
    }
  }
  for (int64_t o = 0; o < width; ++o)
    for (int64_t r = rows; r < BLOCK; ++r) outputs[o * BLOCK + r] = 0.0f;
  return total;
}

struct Room {  // of one thread
  std::vector<float> weights, gradient, values, one, other;
  explicit Room(const Problem& p) : weights(p.random), gradient(p.random), one(p.widest * BLOCK), other(p.widest * BLOCK) {
    int64_t units = 0;
    for (int64_t l = 0; l < p.count; ++l) units += p.layers[l].outputs;
    values.resize(units * BLOCK);
  }
};

// log p(x, D) and its gradient; `inputs` and `targets` are blocks [block][feature][BLOCK]. In the gradient the prior of the
// weights counts `of_weights` times, that of the latents `of_latents` times.
void evaluate(const Problem& p, Room& room, const float* x, const float* inputs, const float* targets, int64_t target_width,
              float* gradient, double& value, double& data_term, float of_weights = 1.0f, float of_latents = 1.0f) {
  const Layer *layers = p.layers, &last = layers[p.count - 1];
  std::vector<double> by_latent(p.columns - p.random, 0.0);
  double prior = p.constant;
  for (int64_t i = 0; i < p.random; ++i) {
    const float apart = x[i] - p.center[i];
    prior -= 0.5 * double(p.precision[i]) * double(apart) * double(apart);
    gradient[i] = -of_weights * p.precision[i] * apart;
    const int32_t at = p.scale_column[i];
    room.weights[i] = at < 0 ? x[i] : p.loc[i] + std::exp(x[at]) * x[i];
    room.gradient[i] = 0.0f;
  }
  const float noise = p.noise_column < 0 ? p.noise : std::exp(x[p.noise_column]);
  double by_log_noise = 0.0;
  data_term = 0.0;
  const float* w = room.weights.data();
  float* g = room.gradient.data();
  for (int64_t start = 0; start < p.rows; start += BLOCK) {
    const int64_t rows = p.rows - start < BLOCK ? p.rows - start : BLOCK;
    const float *first = inputs + start * layers[0].inputs, *in = first;
    float* out = room.values.data();
    for (int64_t l = 0; l < p.count; ++l) {
      products(w + layers[l].weight, layers[l].bias < 0 ? nullptr : w + layers[l].bias, in, out, layers[l].inputs, layers[l].outputs);
      activate(out, layers[l].outputs * BLOCK, layers[l].activation);
      in = out;
      out += layers[l].outputs * BLOCK;
    }
    float* at = room.values.data() + room.values.size() - last.outputs * BLOCK;
    data_term += likelihood(p, at, targets + start * target_width, last.outputs, rows, noise, by_log_noise);
    const float* delta = at;
    float *next = room.one.data(), *spare = room.other.data();
    for (int64_t l = p.count - 1; l >= 0; --l) {
      const Layer& layer = layers[l];
      const float* below = l ? at - layers[l - 1].outputs * BLOCK : first;
      for (int64_t o = 0; o < layer.outputs; ++o) {
        for (int64_t i = 0; i < layer.inputs; ++i) g[layer.weight + o * layer.inputs + i] += dot(delta + o * BLOCK, below + i * BLOCK);
        if (layer.bias >= 0) g[layer.bias + o] += sum(delta + o * BLOCK);
      }
      if (!l) break;
      back(w + layer.weight, delta, next, layer.inputs, layer.outputs);
      slope(next, below, layer.inputs * BLOCK, layers[l - 1].activation);
      delta = next;
      float* swap = next; next = spare; spare = swap;
      at -= layers[l - 1].outputs * BLOCK;
    }
  }
  for (int64_t i = 0; i < p.random; ++i) {
    const int32_t at = p.scale_column[i];
    const float s = at < 0 ? 1.0f : std::exp(x[at]);
    gradient[i] += g[i] * s;
    if (at >= 0) by_latent[at - p.random] += double(g[i]) * double(s * x[i]);
  }
  if (p.noise_column >= 0) by_latent[p.noise_column - p.random] += by_log_noise;
  for (int64_t k = 0; k < p.latents; ++k) {
    const double t = double(x[p.latent_column[k]]), c = std::log(p.latent_scale[k]), square = std::exp(2.0 * (t - c));
    const bool normal = p.latent_kind[k] == 0;
    prior += t - c + (normal ? -0.22579135264472744 - 0.5 * square : -0.45158270528945486 - std::log(1.0 + square));
    by_latent[p.latent_column[k] - p.random] += of_latents * (1.0 - (normal ? square : 2.0 * square / (1.0 + square)));
  }
  for (int64_t i = p.random; i < p.columns; ++i) gradient[i] = float(by_latent[i - p.random]);
  value = data_term + prior;
}

}  // namespace
