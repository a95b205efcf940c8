export default function Projects(_: { q?: string; id?: string }) { return <p>Projects</p>; }
