"""Reinforcement learning: a policy learns to balance a pole on a cart, all of it on the chip.

    JAX_PLATFORMS=tpuc python examples/jax/reinforce.py    # needs optax

The world is a function of JAX, too: a scan plays whole episodes, and REINFORCE with a baseline learns
from how long each pole stood.
"""

import jax
import jax.numpy as jnp
import optax

EPISODES, LENGTH, RATE = 64, 50, 0.02


def moved(state, force):
    """The state [4] of cart and pole, place, speed, angle and its speed, 20 ms later."""
    _, speed, angle, turning = state
    push = (force + 0.05 * turning**2 * jnp.sin(angle)) / 1.1
    bending = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (
        0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1)
    )
    speeding = push - 0.05 * bending * jnp.cos(angle) / 1.1
    change = jnp.stack([speed, speeding, turning, bending])
    return state + 0.02 * change


def choices(params, state):
    """Logits of the two directions."""
    hidden = jnp.tanh(state @ params["w"] + params["b"])
    return hidden @ params["v"]


def episode(params, key):
    """States [LENGTH, 4], directions and rewards [LENGTH] of one episode."""

    def step(carry, key):
        state, stands = carry
        direction = jax.random.categorical(key, choices(params, state))
        after = moved(state, jnp.where(direction == 1, 10.0, -10.0))
        still = stands & (jnp.abs(after[2]) < 0.2) & (jnp.abs(after[0]) < 2.4)
        return (after, still), (state, direction, still.astype(jnp.float32))

    start, steps = jax.random.split(key)
    state = jax.random.uniform(start, (4,), minval=-0.05, maxval=0.05)
    _, found = jax.lax.scan(step, (state, True), jax.random.split(steps, LENGTH))
    return found


@jax.jit
def played(params, key):
    """Episodes, and what each step was worth compared with the mean of all episodes."""
    keys = jax.random.split(key, EPISODES)
    states, directions, rewards = jax.vmap(episode, (None, 0))(params, keys)
    returns = jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
    worth = (returns - returns.mean(0)) / (returns.std(0) + 1e-3)
    return states, directions, worth, rewards.sum(1).mean()


def loss(params, states, directions, worth):
    """Less is better: what was worth much becomes likelier."""
    likely = jax.nn.log_softmax(choices(params, states))
    chosen = jnp.take_along_axis(likely, directions[..., None], -1)[..., 0]
    return -(chosen * worth).mean()


def main(steps=15):
    """Train; return how long the poles stood, on average, in each round."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "w": jax.random.normal(keys[0], (4, 16)),
        "b": jnp.zeros(16),
        "v": jax.random.normal(keys[1], (16, 2)) / 4,
    }
    optimiser = optax.adam(RATE)
    state = optimiser.init(params)

    @jax.jit
    def learnt(params, state, *seen):
        updates, state = optimiser.update(jax.grad(loss)(params, *seen), state)
        return optax.apply_updates(params, updates), state

    stood = []
    for key in jax.random.split(keys[2], steps):
        *seen, length = played(params, key)
        params, state = learnt(params, state, *seen)
        stood.append(float(length))
    return stood


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: poles stood for {found[0]:.1f} -> {found[-1]:.1f} steps")
