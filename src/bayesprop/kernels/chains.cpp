// Trajectories of Hamiltonian chains through small stacks of dense layers. Their definition, in plain torch, are
// inference/mcmc/target.py and leapfrog.py; compiled on first use by kernels/chains.py.
#include "small_stack.hpp"

extern "C" {

// Leapfrog of all chains, `steps` times; with 0 steps the value and the gradient where they stand. `strides` are how far the
// blocks of inputs and of targets of one chain lie from those of the next; 0 where they share them.
void bayesprop_trajectory(const Layer* layers, int64_t count, int64_t rows, int64_t columns, int64_t random, const float* center,
                          const float* precision, const float* loc, const int32_t* scale_column, double constant,
                          const int64_t* latent_column, const int64_t* latent_kind, const double* latent_scale, int64_t latents,
                          int64_t likelihood_kind, int64_t noise_column, float noise, const float* inputs, const float* targets,
                          int64_t target_width, const int64_t* strides, float* theta, float* gradient, float* momentum,
                          const float* scale, double* value, double* data_term, int64_t chains, int64_t steps, float step_size,
                          int64_t threads) {
  int64_t widest = 0;
  for (int64_t l = 0; l < count; ++l) {
    widest = layers[l].inputs > widest ? layers[l].inputs : widest;
    widest = layers[l].outputs > widest ? layers[l].outputs : widest;
  }
  const Problem p{layers, count, rows, columns, random, widest, center, precision, loc, scale_column, constant, latent_column,
                  latent_kind, latent_scale, latents, likelihood_kind, noise_column, noise};
#pragma omp parallel num_threads(int(threads)) if (threads > 1)
  {
    Room room(p);
#pragma omp for schedule(dynamic, 1)
    for (int64_t chain = 0; chain < chains; ++chain) {
      float *x = theta + chain * columns, *g = gradient + chain * columns, *r = momentum + chain * columns;
      const float *s = scale + chain * columns, *own = inputs + chain * strides[0], *labels = targets + chain * strides[1];
      if (!steps) evaluate(p, room, x, own, labels, target_width, g, value[chain], data_term[chain]);
      for (int64_t i = 0; steps && i < columns; ++i) r[i] += 0.5f * step_size * s[i] * g[i];
      for (int64_t k = 0; k < steps; ++k) {
        for (int64_t i = 0; i < columns; ++i) x[i] += step_size * s[i] * r[i];
        evaluate(p, room, x, own, labels, target_width, g, value[chain], data_term[chain]);
        const float kick = (k == steps - 1 ? 0.5f : 1.0f) * step_size;
        for (int64_t i = 0; i < columns; ++i) r[i] += kick * s[i] * g[i];
      }
    }
  }
}
}
