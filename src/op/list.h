/* Every op: X(name, number of leading views, access of each: r reads, w writes, + both).
 * For each row there is struct ebb_<name>, enum ebb_status ebb_<name>_cpu(env, args) and, in builds
 * with CUDA, ebb_<name>_cuda(env, args). No include guard: it is included wherever a list is made
 * from it.
 * SPDX-License-Identifier: Apache-2.0 */
X(fill, 1, "w")                              /* rows.h */
X(gather_rows, 3, "rrw")
X(scatter_rows, 3, "rr+")
X(column_sum, 3, "r+w")
X(store_rows, 2, "r+")
X(copy_rows, 2, "rw")
X(embed_forward, 3, "rrw")                   /* embed.h */
X(embed_backward, 4, "rr+w")
X(rmsnorm_forward, 3, "rrw")                 /* rmsnorm.h */
X(rmsnorm_backward, 6, "rrr++w")
X(matmul, 6, "rrrr+w")                       /* matmul.h */
X(rotary_forward, 6, "rrrrrw")               /* rotary.h */
X(rotary_backward, 9, "rrrrr+++w")
X(attention_forward, 7, "rrrrwww")           /* attention.h */
X(attention_backward, 11, "rrrrrrrwwww")
X(attention_cached, 5, "rrrww")
X(swiglu_forward, 2, "rw")                   /* swiglu.h */
X(swiglu_backward, 3, "rrw")
X(dropout, 2, "r+")                          /* dropout.h */
X(cross_entropy, 6, "+rrw+w")                 /* cross_entropy.h */
X(distill, 7, "+rrrw+w")                      /* distill.h */
X(distill_topk, 8, "+rrrrw+w")
X(label_logprob, 4, "rrrw")                   /* preference.h */
X(preference_loss, 8, "rrrrrw+w")
X(label_logprob_backward, 5, "+rrrw")
X(topk, 3, "rww")                            /* topk.h */
X(norm_squared, 3, "r+w")                     /* optimizer.h */
X(clip, 2, "r+")
X(adamw, 8, "++++++rr")
X(sgd, 7, "+++++rr")
