// Counter-based noise, as kernels/noise.py defines it: one call of Philox4x32-10 yields that of four neighbouring columns.
#pragma once
#include "arithmetic.hpp"

namespace {

constexpr int CHUNK = 256;  // Philox blocks at a time: 1024 columns, which stay in the first-level cache
constexpr int GRAIN = 64;  // blocks that a vectorised and unrolled loop takes at a time, at most; divides CHUNK

// Philox4x32-10 (Salmon et al. 2011). Counter words: block, draw, step, stream. Key: the particle's 64-bit seed.
inline void philox(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1); c3 = uint32_t(p0); c0 = n0; c2 = n2;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
}

struct Key { uint32_t k0, k1, draw, step, stream; };

inline Key make_key(int64_t seed, int64_t draw, int64_t step, int64_t stream) {
  return {uint32_t(seed), uint32_t(uint64_t(seed) >> 32), uint32_t(draw), uint32_t(step), uint32_t(stream)};
}

// The words of `blocks` neighbouring blocks. A vector register multiplies 32 by 32 bits to 64 in every other place only,
// and compilers do not find that instruction: even and odd places are multiplied apart, and their halves sorted.
#if defined(__AVX512F__)
constexpr int LANES = 16;
using Words = __m512i;
inline Words all(uint32_t value) { return _mm512_set1_epi32(int(value)); }
inline Words ascending(uint32_t first) {
  return _mm512_add_epi32(all(first), _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}
inline Words exclusive_or(Words a, Words b, Words c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
inline Words plus(Words a, Words b) { return _mm512_add_epi32(a, b); }
inline void store(uint32_t* to, Words value) { _mm512_storeu_si512(to, value); }
inline void multiply(Words a, Words b, Words& high, Words& low) {
  const Words even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
  high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}
#elif defined(__AVX2__)
constexpr int LANES = 8;
using Words = __m256i;
inline Words all(uint32_t value) { return _mm256_set1_epi32(int(value)); }
inline Words ascending(uint32_t first) { return _mm256_add_epi32(all(first), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0)); }
inline Words exclusive_or(Words a, Words b, Words c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
inline Words plus(Words a, Words b) { return _mm256_add_epi32(a, b); }
inline void store(uint32_t* to, Words value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value); }
inline void multiply(Words a, Words b, Words& high, Words& low) {
  const Words even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
#endif

#if defined(__AVX512F__) || defined(__AVX2__)
template <int CHUNK> inline void words(uint32_t (&x)[4][CHUNK], int64_t first, int blocks, const Key& key) {
  const Words m0 = all(0xD2511F53u), m1 = all(0xCD9E8D57u);
  for (int i = 0; i < blocks; i += LANES) {
    Words c0 = ascending(uint32_t(first + i)), c1 = all(key.draw), c2 = all(key.step), c3 = all(key.stream);
    Words k0 = all(key.k0), k1 = all(key.k1);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      Words high0, low0, high1, low1;
      multiply(c0, m0, high0, low0);
      multiply(c2, m1, high1, low1);
      c0 = exclusive_or(high1, c1, k0); c2 = exclusive_or(high0, c3, k1);
      c1 = low1; c3 = low0;
      k0 = plus(k0, all(0x9E3779B9u)); k1 = plus(k1, all(0xBB67AE85u));
    }
    store(x[0] + i, c0); store(x[1] + i, c1); store(x[2] + i, c2); store(x[3] + i, c3);
  }
}
#else
template <int CHUNK> inline void words(uint32_t (&x)[4][CHUNK], int64_t first, int blocks, const Key& key) {
#pragma omp simd
  for (int i = 0; i < blocks; ++i) {
    uint32_t c0 = uint32_t(first + i), c1 = key.draw, c2 = key.step, c3 = key.stream;
    philox(c0, c1, c2, c3, key.k0, key.k1);
    x[0][i] = c0; x[1][i] = c1; x[2][i] = c2; x[3][i] = c3;
  }
}
#endif

// Sine and cosine of (word + 1/2) / 2^32 turns: the nearest quarter of a turn, then Taylor polynomials whose first omitted term
// is below 3e-8. The library's versions are two calls that the compiler joins into one it cannot vectorise.
inline void sine_cosine(uint32_t word, float& sine, float& cosine) {
  const float x = float(int32_t(word << 2)) * 3.6572951e-10f + 7.3145903e-10f, x2 = x * x;  // pi / 2 / 2^32, and its double
  const float s = x + x * x2 * (-1.6666667e-1f + x2 * (8.3333333e-3f + x2 * (-1.9841270e-4f + x2 * 2.7557319e-6f)));
  const float c = 1.0f + x2 * (-0.5f + x2 * (4.1666667e-2f + x2 * (-1.3888889e-3f + x2 * 2.4801587e-5f)));
  const int quadrant = int((word + 0x20000000u) >> 30);
  const float a = (quadrant & 1) ? c : s, b = (quadrant & 1) ? s : c;
  sine = (quadrant & 2) ? -a : a;
  cosine = (quadrant == 1 || quadrant == 2) ? -b : b;
}

// Standard normal noise of `blocks` blocks (4 columns each) by Box-Muller: u = (x + 1/2) / 2^32 lies in (0, 1].
// `out` has room for CHUNK blocks, and up to GRAIN - 1 more than asked for are made: the rest of a vectorised loop would call
// other versions of log, and a number would depend, in its last bit, on how many are drawn with it.
inline void normal_chunk(float* out, int64_t first_block, int blocks, const Key& key) {
  blocks = (blocks + GRAIN - 1) / GRAIN * GRAIN;
  alignas(64) uint32_t x[4][CHUNK];
  alignas(64) float z[4][CHUNK];
  words(x, first_block, blocks, key);
  constexpr float scale = 2.3283064365386963e-10f, half = 1.1641532182693481e-10f;
  for (int pair = 0; pair < 4; pair += 2) {
#pragma omp simd
    for (int i = 0; i < blocks; ++i) {
      const float radius = std::sqrt(-2.0f * std::log(float(x[pair][i]) * scale + half));
      float sine, cosine;
      sine_cosine(x[pair + 1][i], sine, cosine);
      z[pair][i] = radius * cosine; z[pair + 1][i] = radius * sine;
    }
  }
#pragma omp simd
  for (int i = 0; i < blocks; ++i) {
    out[4 * i] = z[0][i]; out[4 * i + 1] = z[1][i]; out[4 * i + 2] = z[2][i]; out[4 * i + 3] = z[3][i];
  }
}

// The noise of columns [low, high); low is a multiple of 4 * CHUNK, and no more than so many are asked for.
inline void draw(float* noise, int64_t low, int64_t high, const Key& key) {
  normal_chunk(noise, low / 4, int((high - low + 3) / 4), key);
}

}  // namespace
