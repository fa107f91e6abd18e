// Steps of mean-field inference through small stacks of dense layers. The definition, in plain torch, is inference/variational/gradients.py with Adam of inference/optimizers.py; compiled on
// first use by kernels/descent.py.
#include "noise.hpp"
#include "small_stack.hpp"

namespace {

// Rows [row][feature] as blocks [block][feature][BLOCK], zeros behind the last row.
template <class Number> void in_blocks(const Number* from, float* to, int64_t rows, int64_t width) {
  for (int64_t start = 0; start < rows; start += BLOCK, to += width * BLOCK) {
    const int64_t here = rows - start < BLOCK ? rows - start : BLOCK;
    for (int64_t f = 0; f < width; ++f) {
      for (int64_t r = 0; r < here; ++r) to[f * BLOCK + r] = float(from[(start + r) * width + f]);
      for (int64_t r = here; r < BLOCK; ++r) to[f * BLOCK + r] = 0.0f;
    }
  }
}

struct Rows {  // of one particle, in the room of one thread
  std::vector<float> inputs, targets;
  int64_t input = -1, target = -1;  // where they come from
};

}  // namespace

extern "C" {

// One step of all particles. `strides` are how far inputs, targets, and the prior's numbers (center, precision) of one
// particle lie from those of the next; 0 where they share them. With `whole` targets are int64. `kl` are the weights of the KL
// over N, `adam` the eight numbers of each particle as native.cpp has them. `value` takes the rows' log-likelihood at the sample,
// times its scale. With `closed` the KL of the weights is that of two
// Gaussians and not sampled.
void bayesprop_descent(const Layer* layers, int64_t count, int64_t rows, int64_t columns, int64_t random, const float* center,
                       const float* precision, const float* loc, const int32_t* scale_column, const int64_t* latent_column,
                       const int64_t* latent_kind, const double* latent_scale, int64_t latents, int64_t likelihood_kind,
                       int64_t noise_column, float noise_scale, const float* inputs, const void* targets, int64_t whole,
                       int64_t target_width, const int64_t* strides, float* mean, float* rho, float* mean_first,
                       float* mean_second, float* rho_first, float* rho_second, const int64_t* seeds, int64_t step, int64_t stream,
                       const float* adam, const float* kl, int64_t closed, float value_scale, float* value, int64_t particles,
                       int64_t threads) {
  int64_t widest = 0;
  for (int64_t l = 0; l < count; ++l) {
    widest = layers[l].inputs > widest ? layers[l].inputs : widest;
    widest = layers[l].outputs > widest ? layers[l].outputs : widest;
  }
  const int64_t blocks = (rows + BLOCK - 1) / BLOCK, width = layers[0].inputs;
#pragma omp parallel num_threads(int(threads)) if (threads > 1)
  {
    const FlushDenormals flush;
    const Problem shape{layers, count, rows, columns, random, widest, center, precision, loc, scale_column, 0.0, latent_column,
                        latent_kind, latent_scale, latents, likelihood_kind, noise_column, noise_scale};
    Room room(shape);
    Rows own;
    own.inputs.resize(blocks * width * BLOCK);
    own.targets.resize(blocks * target_width * BLOCK);
    std::vector<float> x(columns), g(columns), eps((columns + 4 * CHUNK) / (4 * CHUNK) * (4 * CHUNK));
#pragma omp for schedule(static)
    for (int64_t particle = 0; particle < particles; ++particle) {
      Problem p = shape;
      p.center += particle * strides[2];
      p.precision += particle * strides[2];
      const int64_t input = particle * strides[0], target = particle * strides[1];
      if (own.input != input || own.target != target) {
        own.input = input;
        own.target = target;
        in_blocks(inputs + input, own.inputs.data(), rows, width);
        if (whole) in_blocks(static_cast<const int64_t*>(targets) + target, own.targets.data(), rows, target_width);
        else in_blocks(static_cast<const float*>(targets) + target, own.targets.data(), rows, target_width);
      }
      const int64_t at = particle * columns;
      const float* a = adam + 8 * particle;
      const Key key = make_key(seeds[particle], 0, step, stream);
      for (int64_t low = 0; low < columns; low += 4 * CHUNK)
        draw(eps.data() + low, low, columns < low + 4 * CHUNK ? columns : low + 4 * CHUNK, key);
      for (int64_t i = 0; i < columns; ++i) x[i] = mean[at + i] + scale_of(rho[at + i]).std * eps[i];
      // Gradients of the loss are those of the log joint, with the KL's weight on the prior, over minus the number of rows.
      const float share = kl[particle] * float(rows), by_rows = -1.0f / float(rows);
      double joint, data_term;
      evaluate(p, room, x.data(), own.inputs.data(), own.targets.data(), target_width, g.data(), joint, data_term,
               closed ? 0.0f : share, share);
      value[particle] = float(data_term) * value_scale;
      const Adam by_mean{a[0] / a[5], a[2], a[3], a[4], 1.0f / a[6], a[7]};
      const Adam by_rho{a[1] / a[5], a[2], a[3], a[4], 1.0f / a[6], 1.0f};
      for (int64_t i = 0; i < columns; ++i) {
        const Scale s = scale_of(rho[at + i]);
        float to_mean = g[i] * by_rows, to_std = to_mean * eps[i] - kl[particle] / s.std;
        if (closed && i < random) {
          to_mean += kl[particle] * p.precision[i] * (mean[at + i] - p.center[i]);
          to_std += kl[particle] * p.precision[i] * s.std;
        }
        by_rho(rho[at + i], rho_first[at + i], rho_second[at + i], to_std * s.slope);
        by_mean(mean[at + i], mean_first[at + i], mean_second[at + i], to_mean);
      }
    }
  }
}
}
