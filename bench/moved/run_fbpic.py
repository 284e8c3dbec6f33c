"""A sweep over fbpic's options that launches its kernels."""

from itertools import product
from tempfile import mkdtemp

from fbpic.lpa_utils.laser import GaussianLaser, add_laser_pulse
from fbpic.main import Simulation
from fbpic.openpmd_diag import BackTransformedFieldDiagnostic, FieldDiagnostic, ParticleDiagnostic
from scipy.constants import c

options = product(
    (1, 2, 3), ("linear", "cubic"), ("periodic", "open"), (None, 0.5 * c), ("curl-free", "cross-deposition")
)
for Nm, shape, ends, comoving, correction in options:
    folder = mkdtemp()
    sim = Simulation(
        32,
        20e-6,
        16,
        10e-6,
        Nm,
        20e-6 / 32 / c,
        n_e=1e24,
        p_nz=1,
        p_nr=1,
        p_nt=4,
        use_cuda=True,
        n_guard=8,
        n_damp={"z": 8, "r": 8},
        boundaries={"z": ends, "r": "open" if ends == "open" else "reflective"},
        v_comoving=comoving,
        n_order=8,
        exchange_period=1,
        current_correction=correction,
        particle_shape=shape,
        verbose_level=0,
    )
    electrons = sim.ptcl[0]
    electrons.track(sim.comm)
    electrons.activate_spin_tracking(sx_m=1.0, sy_m=0.0, sz_m=0.0)
    atoms = sim.add_new_species(q=0, m=1e-26, n=1e24, p_nz=1, p_nr=1, p_nt=4)
    atoms.activate_spin_tracking(sx_m=1.0, sy_m=0.0, sz_m=0.0)
    atoms.make_ionizable("N", electrons, level_start=0)
    electrons.activate_synchrotron((1e-19, 1e-18, 8), (-1, 1, 4), (-1, 1, 4))
    electrons.activate_compton(
        sim.add_new_species(q=0, m=0),
        laser_energy=1e-19,
        laser_wavelength=1e-6,
        laser_waist=5e-6,
        laser_ctau=5e-6,
        laser_initial_z0=0,
    )
    if ends == "open":
        sim.set_moving_window(v=c)
        add_laser_pulse(sim, GaussianLaser(1.0, 5e-6, 1e-14, 10e-6), method="antenna", z0_antenna=1e-6)
        sim.diags = [
            BackTransformedFieldDiagnostic(0, 20e-6, c, 1e-14, 2, 2.0, 1, sim.fld, sim.comm, write_dir=mkdtemp())
        ]
    sim.diags += [
        FieldDiagnostic(1, sim.fld, sim.comm, write_dir=folder),
        ParticleDiagnostic(1, {"electrons": electrons}, sim.comm, write_dir=folder),
    ]
    sim.step(3, correct_currents=True)
